# test_fingerprint.sh: log-probabilities of a toy model with one cause planted (tests/tools/make_logprobs.py), and of none.
. tests/cli/lib.sh

make() { python3 tests/tools/make_logprobs.py "$@"; }

# causes A B: what is blamed, of the JSON in $dir/out.
causes() {
    python3 -c '
import json, sys
v = json.load(open(sys.argv[1], encoding="utf-8"))
print(" ".join(c["cause"] + ":" + c["side"] for c in v["causes"]))' "$dir/out"
}

# blames CAUSE WANT [OPTION...]: planting it blames WANT and nothing else.
blames() {
    cause=$1 want=$2
    shift 2
    make "$cause" "$dir" "$@"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl" --json
    expect 1
    got=$(causes)
    [ "$got" = "$want" ] || {
        say "$cause $*: blamed '$got', not '$want'"
        return 1
    }
}

test_planted_causes_are_named_and_only_they() {
    need python3
    for form in "--chat --ids" "--batch --noise 0.01 --seed 3" --sglang "--llama --seed 4"; do
        # shellcheck disable=SC2086
        {
            blames temperature temperature:B $form
            blames top-p filtered:B $form
            blames mask filtered:B $form
            blames presence penalty:B $form
            blames repetition penalty:B $form
            blames top-k top-k-renormalised:B $form
            blames padding masked-padding:B $form
            blames weights weights:B $form
            blames bf16-head bf16-head:B $form
            blames bf16-logprobs bf16-head:B $form
        }
    done
    blames tf32 fewer-bits:B --noise 1e-6
    has "$dir/out" "products of fewer bits (TF32), or weights rounded to BF16"
}

# Two causes at once: neither hides the other, and no third one shows.
test_two_causes_are_both_named() {
    need python3
    while read -r pair want; do
        for form in --chat "--batch --seed 2"; do
            # shellcheck disable=SC2086
            blames "$pair" "$want" $form || return 1
        done
    done <<'PAIRS'
temperature+top-k temperature:B top-k-renormalised:B
temperature+top-p temperature:B filtered:B
temperature+mask temperature:B filtered:B
temperature+repetition temperature:B penalty:B
temperature+padding masked-padding:B temperature:B
temperature+weights temperature:B weights:B
temperature+bf16-logprobs temperature:B bf16-head:B
top-k+presence penalty:B top-k-renormalised:B
top-p+presence filtered:B penalty:B
weights+presence penalty:B weights:B
weights+padding masked-padding:B weights:B
bf16-head+repetition penalty:B bf16-head:B
PAIRS
}

test_sides_change_places() {
    need python3
    for cause in top-p presence top-k padding bf16-head; do
        make $cause "$dir"
        ds fingerprint "$dir/b.jsonl" "$dir/a.jsonl" --json
        expect 1
        case $(causes) in *:A) ;; *) say "$cause: $(causes)"; return 1 ;; esac
    done
}

test_rounding_alone_blames_nothing() {
    need python3
    for seed in 1 2; do
        for noise in 1e-6 0.003 0.1; do
            blames none "" --seed $seed --noise $noise
        done
    done
    ds fingerprint "$dir/a.jsonl" "$dir/a.jsonl"
    expect 0
    has "$dir/out" "fingerprint: same: 504 log-probabilities are equal"
}

test_the_numbers() {
    need python3
    make temperature "$dir" --batch
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl" --json --eps 0.1
    expect 1
    python3 - "$dir" <<'PY'
import json, math, sys
folder = sys.argv[1]
v = json.load(open(folder + "/out", encoding="utf-8"))
def read(name):
    out = []
    for line in open(f"{folder}/{name}.jsonl", encoding="utf-8"):
        out.append(json.loads(line)["response"]["body"]["choices"][0]["logprobs"]["token_logprobs"])
    return out
a, b = read("a"), read("b")
def stats(pairs):
    d = [x - y for x, y in pairs]
    r = [math.exp(-x) for x in d]
    return {"n": len(d), "k1": sum(d) / len(d), "k2": sum(x * x for x in d) / 2 / len(d), "k3": sum(q - 1 + x for q, x in zip(r, d)) / len(d),
            "mean_exp_abs": sum(math.exp(abs(x)) for x in d) / len(d), "max_abs": max(map(abs, d)),
            "clipped": sum(not 0.9 <= q <= 1.1 for q in r) / len(d)}
def agree(got, want):
    for k, x in want.items():
        assert abs(got[k] - x) <= 1e-6 * max(1, abs(x)), (k, got[k], x)
tokens = [p for s, t in zip(a, b) for p in zip(s, t)]
agree(v["tokens"], stats(tokens))
agree(v["sequences"], stats([(sum(s), sum(t)) for s, t in zip(a, b)]))
for bucket in v["positions"]:
    agree(bucket["stats"], stats([p for s, t in zip(a, b) for p in list(zip(s, t))[bucket["from"]:bucket["to"] + 1]]))
assert sum(x["stats"]["n"] for x in v["positions"]) == len(tokens)
for pair, s, t in zip(v["pairs"], a, b):
    agree(pair["stats"], stats(list(zip(s, t))))
worst = sorted((abs(x - y) for x, y in tokens), reverse=True)[:20]
got = [abs(w["a"] - w["b"]) for w in v["worst"]]
assert len(got) == 20 and all(abs(x - y) < 1e-6 for x, y in zip(got, worst)), (got, worst)
assert v["paired_by"] == "custom_id" and v["pairs"][3]["request"] == "request-3", v["pairs"][3]
assert abs(v["causes"][0]["value"] - 0.7) < 0.01, v["causes"]
PY
}

# Pairs that are not of the same tokens are named, and not compared.
test_tokens_come_first() {
    need python3
    for form in "" "--chat" "--ids"; do
        # shellcheck disable=SC2086
        {
            make bos "$dir" $form
            ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
            expect 2
            has "$dir/out" "missing-bos 14"
            has "$dir/out" "a BOS that A lacks"
            has "$dir/out" "nothing compared"
            make shift "$dir" $form
            ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl" --error-exit 125
            expect 125
            has "$dir/out" "shifted: A has 2 tokens more at the beginning"
            make tokens "$dir" $form
            ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
            expect 1
            has "$dir/out" "re-tokenised 14"
            has "$dir/out" "line 1: re-tokenised: the same text, but token 4 is ' w"
            make other "$dir" $form
            ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
            expect 1
            has "$dir/out" "other-token 14"
            has "$dir/out" "' other'"
        }
    done
    make prompt-bos "$dir"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 2
    has "$dir/out" "B has one token more at the beginning of the prompt, 1000: a BOS that A lacks"
    make prompt "$dir"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 1
    has "$dir/out" "equal 7, other-prompt 7"
    has "$dir/out" "line 2: the prompts differ from token 3 on"
    # Equal as far as both go is no pass: a limit cut one side off. Where its model ended it, that was a choice.
    make shorter "$dir" --noise 0
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 2
    has "$dir/out" "incomplete: 140 log-probabilities are equal; 364 tokens of A and 0 of B behind the other's end were not"
    for form in "" --chat --sglang --llama; do
        # shellcheck disable=SC2086
        make ended "$dir" --noise 0 $form
        ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
        expect 1
        has "$dir/out" "ended 14"
        has "$dir/out" ": B ended behind token 10, and A went on"
    done
}

# Any byte may be a token, also 0, which no name in JSON may have here.
test_a_token_of_the_byte_zero() {
    for zero in '{"choices": [{"logprobs": {"tokens": ["\\u0000", "a"], "token_logprobs": [-1, -2], "top_logprobs": [{"\\u0000": -1}, {"a": -2}]}}]}' \
        '{"choices": [{"logprobs": {"content": [{"token": "\\u0000", "bytes": [0], "logprob": -1, "top_logprobs": [{"token": "\\u0000", "bytes": [0], "logprob": -1}]}]}}]}'; do
        printf '%b\n' "$zero" >"$dir/a.jsonl"
        has "$dir/a.jsonl" '\u0000'
        ds fingerprint "$dir/a.jsonl" "$dir/a.jsonl"
        expect 0
    done
}

# llama.cpp's probabilities after sampling are taken as they are.
test_probabilities_after_sampling() {
    echo '{"stop_type": "limit", "completion_probabilities": [{"id": 7, "token": "a", "bytes": [97], "prob": 0.5, "top_probs": [{"id": 7, "token": "a", "bytes": [97], "prob": 0.5}, {"id": 8, "token": "b", "bytes": [98], "prob": 0}]}]}' >"$dir/a.jsonl"
    sed 's/0\.5/0.25/g' "$dir/a.jsonl" >"$dir/b.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 1
    has "$dir/out" "'a' (7): -0.693147181 in A, -1.38629436 in B, d = 0.693"
    echo '{"meta_info": {"output_token_logprobs": [[-1, "x", null]]}}' >"$dir/a.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 2
    has "$dir/err" "a.jsonl, line 1: token 0: a token of output_token_logprobs is not [logprob, id, text]"
    echo '{"text": "x", "meta_info": {"id": "1"}}' >"$dir/a.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 2
    has "$dir/err" "return_logprob=true (SGLang's /generate)"
}

# NaN is no log-probability: beside a number it is a difference, not something that was not given.
test_a_number_on_one_side_is_no_equality() {
    need python3
    make none "$dir" --chat --noise 0
    for value in NaN -Infinity; do
        python3 -c '
import json, sys
lines = [json.loads(x) for x in open(sys.argv[1], encoding="utf-8")]
lines[2]["choices"][0]["logprobs"]["content"][4]["logprob"] = float(sys.argv[3])
open(sys.argv[2], "w", encoding="utf-8").write("".join(json.dumps(x) + "\n" for x in lines))' "$dir/b.jsonl" "$dir/c.jsonl" "$value"
        for sides in "a c" "c a"; do
            # shellcheck disable=SC2086
            set -- $sides
            ds fingerprint "$dir/$1.jsonl" "$dir/$2.jsonl"
            expect 1
            if [ "$value" = NaN ]; then
                has "$dir/out" "missing       1 token without a log-probability on one side; first: "
                has "$dir/out" "; 1 token without a log-probability on one side"
            fi
        done
    done
    ds fingerprint "$dir/c.jsonl" "$dir/c.jsonl"
    expect 0
}

# What was streamed is joined: chunks as JSON lines, events as servers send them, in any mixture of requests.
test_streams_are_joined() {
    need python3
    make none "$dir" --chat
    python3 - "$dir" <<'PYTHON'
import json, sys
d = sys.argv[1]
whole = [json.loads(x) for x in open(d + "/a.jsonl", encoding="utf-8")]
pieces = []
for i, r in enumerate(whole):
    body = r.get("response", {}).get("body", r)
    body.setdefault("id", "r%d" % i)
    c = body["choices"][0]
    tokens = c["logprobs"]["content"]
    head = {k: v for k, v in body.items() if k not in ("choices", "prompt_token_ids")}
    head["object"] = "chat.completion.chunk"
    at = lambda l, f: dict(head, choices=[{"index": 0, "delta": {}, "logprobs": l, "finish_reason": f}])
    pieces.append([at(None, None)] + [at({"content": tokens[k:k + 3]}, None) for k in range(0, len(tokens), 3)]
                  + [at(None, "length"), dict(head, choices=[], usage={})])
    for k in ("prompt_token_ids",):
        body.pop(k, None)
with open(d + "/whole.jsonl", "w") as f:
    for r in whole:
        f.write(json.dumps(r.get("response", {}).get("body", r)) + "\n")
with open(d + "/chunks.jsonl", "w") as f:
    for p in pieces:
        for x in p:
            f.write(json.dumps(x) + "\n")
with open(d + "/events.jsonl", "w") as f:
    f.write(": they come in turn\r\n")
    for k in range(max(map(len, pieces))):
        for p in pieces:
            if k < len(p):
                f.write("event: message\ndata: " + json.dumps(p[k]) + "\n\n")
    f.write("data: [DONE]\n")
with open(d + "/lost.jsonl", "w") as f:
    for p in pieces:
        for x in p[:2] + p[3:]:
            f.write(json.dumps(x) + "\n")
PYTHON
    for way in chunks events; do
        ds fingerprint "$dir/whole.jsonl" "$dir/$way.jsonl"
        expect 0
        has "$dir/out" "14 pairs by id: equal 14"
        has "$dir/out" "at 32-63"
    done
    ds fingerprint "$dir/whole.jsonl" "$dir/lost.jsonl"
    expect 1
    # llama.cpp's pieces have no name; SGLang's may hold all that came before once more.
    p='"stop": false, "completion_probabilities": [{"id": 5, "token": "a", "logprob": -1, "top_logprobs": []}]'
    printf '{%s}\n{%s}\n{"stop": true, "stop_type": "limit"}\n' "$p" "$p" >"$dir/a.jsonl"
    printf 'data: {%s}\n\ndata: {%s}\n\ndata: {"stop": true, "stop_type": "limit"}\n' "$p" "$p" >"$dir/b.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 0
    has "$dir/out" "1 pair by order: equal 1"
    has "$dir/out" "same: 2 log-probabilities are equal"
    echo '{"text": "a", "meta_info": {"id": "x", "finish_reason": null, "output_token_logprobs": [[-1, 5, null]]}}' >"$dir/a.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 2
    has "$dir/err" "a.jsonl, line 1: a piece of a stream of SGLang's /generate"
}

# Equal log-probabilities of what was chosen are not all: alternatives are part of the distribution.
test_other_alternatives_are_a_drift() {
    row() {
        printf '{"id": "q", "choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": [-0.5], "top_logprobs": [{%s}]}}]}\n' "$1"
    }
    row '"a": -0.5, "b": -1.5, "c": -3' >"$dir/a.jsonl"
    row '"a": -0.5, "b": -1.6, "c": -3' >"$dir/b.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 1
    has "$dir/out" "alternatives  at 1 token other log-probabilities of what was not chosen; first: line 1, token 0"
    has "$dir/out" "; other alternatives at 1 token"
    # A token that comes before one that is listed would be listed, too.
    row '"a": -0.5, "x": -1.5, "c": -3' >"$dir/b.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl" --json
    expect 1
    has "$dir/out" '"other_alternatives": 1,'
    # Shorter lists, and a chosen token behind them, say nothing.
    row '"a": -0.5, "b": -1.5' >"$dir/b.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl"
    expect 0
}

test_pairs_by_request() {
    need python3
    make none "$dir" --batch --noise 0
    tac "$dir/b.jsonl" | head -n 13 >"$dir/c.jsonl" # another order, one missing
    ds fingerprint "$dir/a.jsonl" "$dir/c.jsonl"
    expect 2
    has "$dir/out" "13 pairs by custom_id; 1 of A and 0 of B without a partner"
    has "$dir/out" "incomplete: 468 log-probabilities are equal; 1 of A and 0 of B were not compared"
    ds fingerprint "$dir/a.jsonl" "$dir/c.jsonl" --json
    expect 2
    has "$dir/out" '"result": "incomplete"'
    sed 's/request-/question-/' "$dir/b.jsonl" >"$dir/c.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/c.jsonl"
    expect 2
    has "$dir/err" "share no custom_id"
    make none "$dir" --noise 0
    ds fingerprint "$dir/a.jsonl" "$dir/a.jsonl" # the server's ids
    has "$dir/out" "14 pairs by id"
    hasnt "$dir/out" "of one before them"
    make none "$dir" --batch --noise 0
    # A name that stands twice says less than it seems to.
    sed 's/ "custom_id": "[^"]*"/ "custom_id": "one"/; s/^{"custom_id": "[^"]*"/{"custom_id": "one"/' "$dir/a.jsonl" >"$dir/same.jsonl"
    ds fingerprint "$dir/same.jsonl" "$dir/same.jsonl"
    expect 0
    has "$dir/out" "13 of A and 13 of B have the custom_id of one before them (one): these are paired in the order of their lines"
}

test_mistakes_name_file_and_line() {
    need python3
    make none "$dir"
    head -n 2 "$dir/b.jsonl" >"$dir/c.jsonl"
    sed -n 3p "$dir/b.jsonl" | head -c 300 >>"$dir/c.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/c.jsonl"
    expect 2
    empty "$dir/out"
    has "$dir/err" "c.jsonl, line 3: no JSON: "
    printf '\n{"choices": [{"index": 0, "text": "x"}]}\n' >"$dir/c.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/c.jsonl"
    expect 2
    has "$dir/err" "c.jsonl, line 2: a choice has no log-probabilities"
    has "$dir/err" "hint: ask for them"
    echo '{"error": {"message": "overloaded"}}' >"$dir/c.jsonl"
    ds fingerprint "$dir/c.jsonl" "$dir/a.jsonl"
    expect 2
    has "$dir/err" "c.jsonl: no responses, only errors of the server; line 1: 'overloaded'"
    echo '{}' >"$dir/c.jsonl"
    ds fingerprint "$dir/c.jsonl" "$dir/a.jsonl"
    expect 2
    has "$dir/err" "c.jsonl, line 1: no response with choices"
    echo '{"choices": [{"logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1]}}]}' >"$dir/c.jsonl"
    ds fingerprint "$dir/c.jsonl" "$dir/a.jsonl"
    expect 2
    has "$dir/err" "c.jsonl, line 1: 2 tokens and 1 token_logprobs"
    : >"$dir/c.jsonl"
    ds fingerprint "$dir/c.jsonl" "$dir/a.jsonl"
    expect 2
    has "$dir/err" "c.jsonl: no responses"
    ds fingerprint "$dir/nothing.jsonl" "$dir/a.jsonl"
    expect 2
    has "$dir/err" "cannot read"
    ds fingerprint "$dir/a.jsonl" "$dir/b.jsonl" --eps 1.5
    expect 2
    has "$dir/err" "--eps '1.5' is no number between 0 and 1"
}

# A server's error, in any of the forms in which it stands among responses, is no answer and no reason to stop: the others stay in
# their places beside their partners.
test_errors_of_the_server_keep_their_place() {
    need python3
    make none "$dir"
    sed -i 's/"id": "[^"]*"/"id": null/; s/"custom_id": "[^"]*"/"custom_id": null/' "$dir/a.jsonl" "$dir/b.jsonl"
    ds fingerprint "$dir/a.jsonl" "$dir/a.jsonl"
    expect 0
    has "$dir/out" " by order"
    for failed in '{"error": {"message": "overloaded", "type": "server_error"}}' '{"object": "error", "message": "overloaded", "code": 400}' \
        '{"response": {"status_code": 500, "body": {"error": {"message": "overloaded"}}}, "error": null}' \
        '{"response": null, "error": {"code": "batch_expired", "message": "overloaded"}}' '{"error": "overloaded"}'; do
        { head -n 4 "$dir/a.jsonl"; echo "$failed"; tail -n +6 "$dir/a.jsonl"; } >"$dir/c.jsonl"
        ds fingerprint "$dir/a.jsonl" "$dir/c.jsonl"
        expect 2
        has "$dir/out" "13 pairs by order; 1 of A and 1 of B without a partner: equal 13"
        has "$dir/out" "1 of B: an error of the server instead, first in line 5: 'overloaded'"
        has "$dir/out" "fingerprint: incomplete: "
        ds fingerprint "$dir/c.jsonl" "$dir/a.jsonl" --json
        has "$dir/out" '"failed_a": 1'
        has "$dir/out" '"failed_b": 0'
    done
    ds fingerprint "$dir/b.jsonl" "$dir/c.jsonl"
    expect 1
}

run_tests
