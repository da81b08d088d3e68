# test_inputs.sh: --inputs: recorded conversations through storm, replay and run; what is frozen, where they stop, and every mistake.
. tests/cli/lib.sh

model=random:llama,layers=2,hidden=32,ffn=48,vocab=64,seed=2
small="-m $model --threads 1"

# The first call of a conversation and what follows it, ITEM[, ITEM...] as turns.
inputs() { # FILE TURNS
    printf '{"schema": "driftscope.inputs/1", "clock": 1717425120, "requests": [{"id": "a", "turns": [%s]}]}\n' "$2" >"$1"
}

# Makes $dir/rec.json: two calls of the model with a tool's answer in between, all of it as the model says it.
recording() {
    inputs "$dir/1.json" '{"tokens": [5, 9, 1, 44, 23]}'
    ds storm $small --inputs "$dir/1.json" -n 4 --compare pinned -o "$dir/1.h5"
    expect 0
    ds replay "$dir/1.h5" --export-inputs "$dir/1r.json"
    expect 0
    empty "$dir/out"
    python3 - "$dir/1r.json" "$dir/2.json" <<'PY'
import json, sys
doc = json.load(open(sys.argv[1]))
turns = doc["requests"][0]["turns"]
assert len(turns) == 2 and len(turns[1]["expect"]) == 4, turns
turns.append({"tokens": [8, 2, 6]})
json.dump(doc, open(sys.argv[2], "w"))
PY
    ds storm $small --inputs "$dir/2.json" -n 5 --compare pinned -o "$dir/2.h5"
    expect 0
    ds replay "$dir/2.h5" --export-inputs "$dir/rec.json"
    expect 0
}

test_a_recording_is_followed_to_the_end() {
    need python3
    recording
    ds storm $small --inputs "$dir/rec.json" --compare pinned -o "$dir/a.h5"
    expect 0
    has "$dir/out" "1 conversation, 2 calls of the model; clock 2024-06-03T14:32:00Z"
    has "$dir/out" "recorded      pinned: 1 of 1 conversation follows the recording to the end; 2 calls held against it"
    has "$dir/out" "; the recording is followed by 1 of 1 conversation with pinned"
    # What is a whole file is shown by its size and digest.
    ds show "$dir/a.h5" --environment
    grep -q "^  inputs  *[0-9]* bytes, XXH3 [0-9a-f]\{16\}$" "$dir/out"
    grep -q "^  serve_schedule  *[0-9]* bytes, XXH3 [0-9a-f]\{16\}$" "$dir/out"
    hasnt "$dir/out" "driftscope.inputs/1"
    # Copies share calls; the second call of a copy comes when its first has all its tokens.
    ds storm $small --inputs "$dir/rec.json" --requests 12 --rate 3 --max-batch 4 --compare pinned -o "$dir/b.h5" --json
    expect 0
    python3 - "$dir/out" <<'PY'
import json, sys
v = json.load(open(sys.argv[1]))
assert v["result"] == "same" and v["inputs"]["calls"] == 2, v
assert v["inputs"]["requests"] == [{"id": "a", "clock": "2024-06-03T14:32:00Z"}], v["inputs"]
(c,) = v["sets"][0]["recorded"]
assert c == {"id": "a", "copies": 6, "followed": 6, "parted": 0, "calls_judged": 12, "calls_left_out": 0, "first_parting": None}, c
assert v["schedule"]["new_tokens"] == 5, v["schedule"]
PY
    ds replay "$dir/b.h5" -m $model
    expect 0
    has "$dir/out" "recorded      pinned: 6 of 6 conversations follow the recording to the end"
    ds replay "$dir/b.h5" --export-schedule "$dir/steps.jsonl"
    python3 - "$dir/steps.jsonl" <<'PY'
import json, sys
first, last = {}, {}
for step, line in enumerate(open(sys.argv[1])):
    for piece in json.loads(line)["batch"]:
        first.setdefault(piece["request"], step)
        last[piece["request"]] = step
for r in range(1, 12, 2):
    assert first[r] > last[r - 1], (r, first[r], last[r - 1])
PY
    # What the record holds gives the record again.
    ds replay "$dir/b.h5" --export-inputs "$dir/again.json"
    expect 0
    same_files "$dir/rec.json" "$dir/again.json"
}

test_a_conversation_stops_at_the_first_call_that_differs() {
    need python3
    recording
    python3 - "$dir/rec.json" "$dir" <<'PY'
import json, sys
for call, token in ((1, 2), (3, 0)):
    doc = json.load(open(sys.argv[1]))
    expect = doc["requests"][0]["turns"][call]["expect"]
    expect[token] = (expect[token] + 1) % 64
    json.dump(doc, open("%s/wrong%d.json" % (sys.argv[2], call), "w"))
PY
    ds storm $small --inputs "$dir/wrong1.json" --compare pinned --requests 4 -o "$dir/a.h5"
    expect 1
    has "$dir/out" "recorded      pinned: 0 of 2 conversations follow the recording to the end; 2 calls held against it"
    has "$dir/out" "a stops at turn 1: token 2 is token "
    has "$dir/out" "; 0 of 2 copies follow; 2 later calls are not judged"
    tail -n 1 "$dir/out" >"$dir/last"
    has "$dir/last" "storm: drift: 2 prompts had 2 completions with pinned; the recording is followed by 0 of 2 conversations with pinned"
    ds storm $small --inputs "$dir/wrong3.json" --compare pinned -o "$dir/b.h5" --json
    expect 1
    python3 - "$dir/out" <<'PY'
import json, sys
v = json.load(open(sys.argv[1]))
(c,) = v["sets"][0]["recorded"]
f = c["first_parting"]
assert v["result"] == "drift" and v["unique_completions"] == 2 and c["calls_judged"] == 2 and c["calls_left_out"] == 0, v
assert f["turn"] == 3 and f["token"] == 0 and (f["got"] + 1) % 64 == f["expected"] and f["margin"] > 0 and f["got_text"] is None, f
PY
    # Of one call alone, and the bits are those of the record, whatever was recorded of the conversation.
    ds replay "$dir/a.h5" -m $model
    expect 0
    has "$dir/out" "a stops at turn 1"
    ds replay "$dir/a.h5" -m $model --request 1
    expect 0
}

# Kernels change the answer: replay names the call.
test_other_kernels_name_the_call() {
    need python3
    flips=random:qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,experts=8,top_k=1,ffn=128,vocab=256,router_scale=1e-7
    inputs "$dir/1.json" '{"tokens": [5, 9, 1, 44, 23, 8, 2]}'
    ds storm -m $flips --dtype f32 --threads 2 --inputs "$dir/1.json" -n 12 --requests 6 --rate 0.5 --compare split -o "$dir/1.h5"
    [ "$code" -le 1 ]
    ds replay "$dir/1.h5" --export-inputs "$dir/r.json"
    ds storm -m $flips --dtype f32 --threads 2 --inputs "$dir/r.json" --requests 6 --rate 0.5 --compare split,pinned -o "$dir/a.h5"
    expect 1
    has "$dir/out" "; the recording is followed by "
    has "$dir/out" "a stops at turn 1: token "
    has "$dir/out" "first parting split: request "
    has "$dir/out" " (a, turn 1)"
}

test_texts_are_frozen_and_changes_are_named() {
    mkdir "$dir/in"
    printf 'first' >"$dir/in/one.txt"
    cat >"$dir/in/f.json" <<'END'
{"schema": "driftscope.inputs/1", "clock": "2024-06-03T14:32:00Z", "texts": {"one": {"file": "one.txt"}},
 "requests": [{"id": "a", "texts": {"two": {"text": "x"}}, "turns": [{"tokens": [5, 9]}]}]}
END
    ds storm $small --inputs "$dir/in/f.json" -n 2 --compare pinned -o "$dir/a.h5"
    expect 0
    has "$dir/out" "text one "
    has "$dir/out" ", from one.txt"
    ds replay "$dir/a.h5" -m $model --inputs "$dir/in/f.json"
    expect 0
    empty "$dir/err"
    printf 'second' >"$dir/in/one.txt"
    sed -i 's/14:32/14:33/; s/\[5, 9\]/[5, 8]/; s/"x"/"y"/' "$dir/in/f.json"
    ds replay "$dir/a.h5" -m $model --inputs "$dir/in/f.json"
    expect 0
    has "$dir/err" "f.json: clock was 2024-06-03T14:32:00Z, is 2024-06-03T14:33:00Z; replayed as recorded"
    has "$dir/err" "f.json: text one was "
    has "$dir/err" "f.json: request 'a': two was "
    has "$dir/err" "f.json: request 'a': turn 0 was another one, is this one"
    rm -r "$dir/in" # the record needs none of it
    ds replay "$dir/a.h5" -m $model
    expect 0
    ds replay "$dir/a.h5" --export-inputs "$dir/out.json"
    expect 0
    has "$dir/out.json" '"text": "first"'
    has "$dir/out.json" '"from": "one.txt"'
    ds storm $small --tokens 5,9 -n 2 --requests 1 --compare pinned -o "$dir/plain.h5"
    ds replay "$dir/plain.h5" --export-inputs "$dir/none.json"
    expect 2
    has "$dir/err" "the record was made without --inputs"
    ds replay "$dir/plain.h5" -m $model --inputs "$dir/out.json"
    expect 2
    has "$dir/err" "the record was made without --inputs"
}

test_run_takes_a_call_as_its_subject() {
    need python3
    recording
    for call in a:1 a:3; do
        ds run -m $model --inputs "$dir/rec.json" --call $call -n 2 --batch 1,2 --threads 1 --repeat 1 --kernels pinned -o "$dir/run-${call#a:}.h5" --json
        expect 0
        has "$dir/out" '"result": "same"'
    done
    ds run -m $model --tokens 5,9,1,44,23 -n 2 --batch 1 --threads 1 --repeat 1 --kernels pinned -o "$dir/plain.h5"
    ds diff "$dir/plain.h5" "$dir/run-1.h5" --partial --json
    expect 0
    ds diff "$dir/plain.h5" "$dir/run-3.h5"
    has "$dir/out" "option        inputs_digest: 0 in A, "
    has "$dir/out" "option        inputs_call: 0 in A, a:3 in B"
    has "$dir/out" "prompt        length: its first 5 tokens in A, 12 tokens in B"
    hasnt "$dir/out" "driftscope.inputs/1"
    ds replay "$dir/run-3.h5" --export-inputs "$dir/again.json"
    expect 0
    same_files "$dir/rec.json" "$dir/again.json"
    ds run -m $model --inputs "$dir/rec.json" --call a:2 -o "$dir/x.h5"
    expect 2
    has "$dir/err" "--call 'a:2': no turn of the model"
    has "$dir/err" "as in --call a:3"
    ds run -m $model --inputs "$dir/rec.json" --tokens 1,2 -o "$dir/x.h5"
    expect 2
    has "$dir/err" "--inputs and --tokens: prompts come from one of them"
    [ ! -e "$dir/x.h5" ]
}

# The real model in its chat form: a system prompt with a frozen clock, a tool's answer from a file, two turns of the model.
test_real_conversation() {
    need python3
    real=${DRIFTSCOPE_MODEL:-smollm2}
    printf 'You are a clerk. Today is {{clock:%%A, %%d %%B %%Y}}.' >"$dir/policy.txt"
    printf 'Order 4711 was {{sent}} on 31 May.' >"$dir/order.txt"
    cat >"$dir/1.json" <<'END'
{"schema": "driftscope.inputs/1", "clock": "2024-06-03T23:30:00+02:00",
 "texts": {"policy": {"file": "policy.txt", "template": true}, "order": {"file": "order.txt"}},
 "requests": [{"id": "t", "turns": [{"role": "system", "text": "policy"}, {"role": "user", "content": "Where is order 4711? ({{clock}})"}]}]}
END
    ds storm -m "$real" --inputs "$dir/1.json" -n 6 --compare pinned --sites resid -o "$dir/1.h5" --json
    if grep -q "not in the cache\|no cache folder" "$dir/err"; then
        skip "no real model in the cache (make model)"
    fi
    expect 0
    ds replay "$dir/1.h5" --export-inputs "$dir/1r.json"
    python3 - "$dir/out" "$dir/1r.json" "$dir/2.json" "$dir/1.h5" <<'PY'
import json, sys
doc = json.load(open(sys.argv[2]))
turns = doc["requests"][0]["turns"]
assert len(turns) == 3 and turns[2]["role"] == "assistant" and len(turns[2]["expect"]) == 6, turns
turns += [{"role": "tool", "text": "order"}, {"role": "user", "content": "Repeat that."}]
json.dump(doc, open(sys.argv[3], "w"))
PY
    ds storm -m "$real" --inputs "$dir/2.json" -n 6 --compare pinned --sites resid -o "$dir/2.h5"
    expect 0
    has "$dir/out" "recorded      pinned: 1 of 1 conversation follows the recording to the end; 1 call held against it"
    has "$dir/out" "clock 2024-06-03T23:30:00+02:00"
    ds show --environment "$dir/2.h5"
    has "$dir/out" '<|im_start|>system\nYou are a clerk. Today is Monday, 03 June 2024.<|im_end|>\n<|im_start|>user\nWhere is order 4711? (2024-06-03T23:30:00+02:00)<|im_end|>\n<|im_start|>assistant\n'
    ds replay "$dir/2.h5" -m "$real"
    expect 0
    ds replay "$dir/2.h5" --export-inputs "$dir/r.json"
    # The second call got the tool's answer as it is, and what is said as a text is the same recording.
    python3 - "$dir/r.json" "$dir/wrong.json" <<'PY'
import json, sys
doc = json.load(open(sys.argv[1]))
doc["requests"][0]["turns"][2] = {"role": "assistant", "expect": "No such answer", "finish": "length"}
json.dump(doc, open(sys.argv[2], "w"))
PY
    ds storm -m "$real" --inputs "$dir/wrong.json" --compare pinned --sites resid -o "$dir/w.h5"
    expect 1
    has "$dir/out" "t stops at turn 2: token 0 is '"
    has "$dir/out" "', recorded 'No'"
    has "$dir/out" "1 later call is not judged"
}

# refuses TEXT MESSAGE: such a file is an error that says so, and leaves no record.
refuses() {
    printf '%s' "$1" >"$dir/bad.json"
    ds storm $small --inputs "$dir/bad.json" -n 2 --compare pinned -o "$dir/bad.h5"
    expect 2
    has "$dir/err" "$2"
    [ ! -e "$dir/bad.h5" ]
}

test_mistakes_name_their_place() {
    head='{"schema": "driftscope.inputs/1", "requests": [{"id": "a", "turns": ['
    printf 'text' >"$dir/t.txt"
    refuses '' "bad.json, line 1, column 0: no JSON"
    refuses '{"schema": "driftscope.inputs/1",
 "requests": [}' "bad.json, line 2, column 15: no JSON"
    refuses '{"a": 1, "a": 2}' "no JSON: duplicate object key"
    refuses '[]' "it is no JSON object"
    refuses '{"schema": "other"}' 'it does not say "schema": "driftscope.inputs/1"'
    refuses '{"schema": "driftscope.inputs/1"}' '"requests" is no list with at least one request'
    refuses '{"schema": "driftscope.inputs/1", "clocks": 1}' '"clocks" is not known here'
    refuses '{"schema": "driftscope.inputs/1", "clock": "2024-02-30T00:00:00Z"}' "the clock is no time"
    refuses '{"schema": "driftscope.inputs/1", "clock": -1}' "the clock is no time"
    refuses "$head]}]}" "request 'a': \"turns\" is no list"
    refuses "$head{}, {\"tokens\": [1]}]}]}" "request 'a': turn 0: the model's turn has no \"expect\", and a turn follows it"
    refuses "$head{\"expect\": [1]}]}]}" "request 'a': turn 0: nothing comes before what the model says"
    refuses "$head{\"tokens\": []}]}]}" "turn 0: \"tokens\" is no list of token ids"
    refuses "$head{\"tokens\": [64]}]}]}" "request 'a': turn 0: token 64 is outside the model's vocabulary of 64"
    refuses "$head{\"tokens\": [1, -1]}]}]}" "turn 0: \"tokens\": number 1 is no token id"
    refuses "$head{\"tokens\": [1]}, {\"expect\": [1, 1.5]}]}]}" "turn 1: \"expect\": number 1 is no token id"
    refuses "$head{\"tokens\": [1], \"content\": \"x\"}]}]}" "turn 0: it has to have one of"
    refuses "$head{\"tokens\": [1], \"role\": \"user\"}]}]}" "turn 0: \"tokens\" are in no role"
    refuses "$head{\"content\": \"x\", \"finish\": \"stop\"}]}]}" "turn 0: \"finish\" without \"expect\""
    refuses "$head{\"content\": \"{{text:none}}\"}]}]}" "turn 0: there is no text 'none'"
    refuses "$head{\"text\": \"none\"}]}]}" "turn 0: there is no text 'none'"
    refuses "$head{\"content\": \"{{clock}}\"}]}]}" "turn 0: {{clock}}: the file says no clock"
    refuses "$head{\"content\": \"{{clokc}}\"}]}]}" "turn 0: '{{clokc}}' is no placeholder"
    refuses "$head{\"content\": \"x {{clock\"}]}]}" "is no placeholder"
    refuses "$head{\"content\": \"x\"}]}]}" "this model has no tokenizer, so nothing can be text"
    refuses "$head{\"role\": \"user\", \"content\": \"x\"}]}]}" "this model has no tokenizer"
    refuses "$head{\"tokens\": [1]}]}, {\"id\": \"a\", \"turns\": [{\"tokens\": [1]}]}]}" "request 'a' is there twice"
    texts='{"schema": "driftscope.inputs/1", "requests": [{"id": "a", "turns": [{"tokens": [1]}]}], "texts": {"t": '
    refuses "$texts{\"file\": \"none.txt\"}}}" "text 't': "
    refuses "$texts{\"file\": \"t.txt\", \"digest\": \"0123456789abcdef\"}}}" "text 't': the text in 't.txt' has digest "
    refuses "$texts{\"text\": \"x\", \"digest\": \"0123456789abcdef\"}}}" "text 't': the text has digest "
    refuses "$texts{\"text\": \"x\", \"file\": \"t.txt\"}}}" "text 't': it has to have \"text\" or \"file\", one of them"
    refuses "$texts{}}}" "text 't': it has to have \"text\" or \"file\""
    printf 'a\377' >"$dir/t.txt"
    refuses "$texts{\"file\": \"t.txt\"}}}" "text 't': 't.txt' is no text"
    ds storm $small --inputs "$dir/nothing.json" -o "$dir/x.h5"
    expect 2
    has "$dir/err" "nothing.json"
    ds storm $small --inputs "$dir/bad.json" --chat -o "$dir/x.h5"
    expect 2
    has "$dir/err" "--inputs and --chat"
}

run_tests
