# test_report.sh: records as a page: well-formed, self-contained, nobody's markup but ours, and readable in a browser.
. tests/cli/lib.sh

# Experts whose router rows are almost equal: any drift chooses other ones, and so turns tokens over, on every machine.
flips="-m random:qwen3moe,layers=2,hidden=256,heads=4,kv_heads=2,experts=8,top_k=1,ffn=128,vocab=256,router_scale=1e-7 --dtype f32
    --tokens 5,9,1,44,23,8,2 --tokens 60,31,11,12,13 --threads 2 --max-batch 6 --chunk 14 -n 10"
small="-m random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128 --tokens 5,9,1,44,23,8,2,60,31 --threads 1 -n 3
    --slot first --neighbours copies --chunk 0 --mode prefill --repeat 1"

# page FILE: it is well-formed, asks for nothing from elsewhere, has no script, and the ids that it refers to.
page() {
    python3 - "$1" <<'PY'
import re, sys
import xml.etree.ElementTree as et
text = open(sys.argv[1], encoding="utf-8").read()
root = et.fromstring(text[text.index("<html"):] if "<html" in text else text)
tag = lambda e: e.tag.rsplit("}", 1)[-1]
ids = [e.get("id") for e in root.iter() if e.get("id")]
assert len(ids) == len(set(ids)), "an id twice"
for e in root.iter():
    assert tag(e) not in ("script", "img", "iframe", "object", "embed", "link", "base", "form"), tag(e)
    for name, value in e.attrib.items():
        assert not name.lower().startswith("on"), (tag(e), name)
        if name in ("href", "src", "xlink:href"):
            assert value.startswith("#") and value[1:] in ids, value
        if name == "aria-labelledby":
            assert all(x in ids for x in value.split()), value
style = "".join(e.text or "" for e in root.iter() if tag(e) == "style")
assert "url(" not in style and "@import" not in style, "the style asks for something"
drawings = [e for e in root.iter() if tag(e) == "svg"]
for d in drawings:
    kinds = [tag(c) for c in d][:2]
    assert kinds == ["title", "desc"] and all(c.text for c in list(d)[:2]), kinds
print(len(drawings))
PY
}

test_a_run() {
    need python3
    ds run $small --batch 1,8 --kernels vendor+matmul=split-k -o "$dir/a.h5"
    expect 1
    ds report "$dir/a.h5" -o "$dir/a.html" --data "$dir/numbers"
    expect 0
    empty "$dir/out"
    [ "$(page "$dir/a.html")" -eq 2 ]
    has "$dir/a.html" "drift: first at layer 0 q_proj, matmul/split-k"
    has "$dir/a.html" "<dt>first drift</dt>"
    has "$dir/a.html" "Machine, build, libraries, options"
    [ "$(head -n 1 "$dir/numbers/heat.tsv" | cut -f 1-4)" = "layer	stage	part	sign" ]
    grep -q "^0	q_proj		#	origin" "$dir/numbers/heat.tsv"
    [ "$(wc -l <"$dir/numbers/growth.tsv")" -eq 3 ]
    for figure in heat growth; do
        ds report "$dir/a.h5" --figure $figure -o "$dir/$figure.svg"
        expect 0
        [ "$(page "$dir/$figure.svg")" -eq 1 ]
    done
    ds report "$dir/a.h5" --figure heat
    expect 0
    same_files "$dir/heat.svg" "$dir/out"
    ds report "$dir/a.h5" --figure tree
    expect 2
    has "$dir/err" "the record has no figure 'tree'"
    ds report "$dir/a.h5" --figure heat --arm 7
    expect 2
    has "$dir/err" "unknown arm 7: the record has 0..1"
}

test_a_storm() {
    need python3
    ds storm $flips --requests 18 --rate 0.7 -o "$dir/a.h5" --compare split,pinned
    expect 1
    ds report "$dir/a.h5" -o "$dir/a.html" --data "$dir/numbers"
    expect 0
    [ "$(page "$dir/a.html")" -eq 1 ] # with pinned nothing parts, which needs no drawing
    has "$dir/a.html" "Nothing parts: each of the 2 prompts has one completion"
    has "$dir/a.html" "drift: 2 prompts had "
    has "$dir/a.html" "2 completions with pinned"
    has "$dir/a.html" "step "
    cut -f 1-3 "$dir/numbers/tree-1.tsv" >"$dir/tree"
    printf 'prompt\trequest\trequests\n0\t0\t9\n1\t1\t9\n' >"$dir/want"
    same_files "$dir/want" "$dir/tree"
    ds report "$dir/a.h5" --figure tree -o "$dir/tree.svg"
    expect 0
    [ "$(page "$dir/tree.svg")" -eq 1 ]
    ds report "$dir/a.h5" --figure tree --arm 1
    expect 2
    has "$dir/err" "nothing to draw: Nothing parts"
    for arm in 2 99999; do
        ds report "$dir/a.h5" --arm $arm -o "$dir/none.html"
        expect 2
        has "$dir/err" "unknown arm $arm: the record has 0..1"
    done
    [ ! -e "$dir/none.html" ]
    ds report "$dir/a.h5" --figure heat
    expect 2
    has "$dir/err" "the record has no figure 'heat'"
}

# Two records of the same settings and one of another: what changes between records is in tests/unit/report/test_page.c.
test_several_records() {
    need python3
    ds run $small --batch 1,4 --kernels pinned -o "$dir/a.h5"
    expect 0
    ds run $small --batch 1,4 --kernels pinned -o "$dir/b.h5"
    expect 0
    ds run $small --batch 2 --kernels pinned -o "$dir/c.h5"
    expect 0
    ds report "$dir/b.h5" "$dir/c.h5" "$dir/a.h5" -o "$dir/all.html" --data "$dir/numbers"
    expect 0
    [ "$(page "$dir/all.html")" -ge 1 ]
    has "$dir/all.html" "Answers over time"
    has "$dir/all.html" "3 records in the order of their times, 3 prompts at settings"
    hasnt "$dir/all.html" "What changed"
    [ "$(wc -l <"$dir/numbers/time.tsv")" -eq 6 ]
    [ -e "$dir/numbers/3-heat.tsv" ]
    ds report "$dir/b.h5" "$dir/a.h5" --figure time -o "$dir/time.svg"
    expect 0
    [ "$(page "$dir/time.svg")" -eq 1 ]
    # What may have changed them stands beside the answers, what did not does not.
    OPENBLAS_CORETYPE=Nehalem ds run $small --batch 1,4 --kernels pinned -o "$dir/d.h5"
    ds report "$dir/a.h5" "$dir/b.h5" "$dir/d.h5" -o "$dir/changed.html"
    expect 0
    [ "$(page "$dir/changed.html")" -ge 1 ]
    has "$dir/changed.html" "What changed"
    has "$dir/changed.html" "<title>OPENBLAS_CORETYPE</title>"
    grep -q "<td>OPENBLAS_CORETYPE</td><td>[^<]*</td><td>Nehalem</td>" "$dir/changed.html"
    hasnt "$dir/changed.html" "<td>cpu_model</td>"
    ds report "$dir/b.h5" --figure time
    expect 2
    has "$dir/err" "--figure time is of several records"
    ds report "$dir/b.h5" "$dir/a.h5" --figure heat
    expect 2
    has "$dir/err" "--figure heat is of one record"
}

# An endpoint that answers as it did is the same under more traffic.
test_more_requests_are_no_other_answer() {
    for n in 6 18; do
        # shellcheck disable=SC2086
        ds storm $flips --requests $n --compare pinned -o "$dir/n$n.h5"
        expect 0
    done
    ds report "$dir/n6.h5" "$dir/n18.h5" -o "$dir/n.html" --data "$dir/n"
    expect 0
    cut -f 3,5 "$dir/n/time.tsv" | sort >"$dir/signs"
    printf 'n18.h5\ta1\nn18.h5\ta1\nn6.h5\ta1\nn6.h5\ta1\nrecord\tsign\n' >"$dir/want"
    sed "s|^.*/n|n|" "$dir/signs" >"$dir/got"
    same_files "$dir/want" "$dir/got"
    # At another concurrency it is another row of the same prompt, charted all the same.
    ds storm $flips --requests 6 --max-batch 3 --compare pinned -o "$dir/few.h5"
    expect 0
    ds report "$dir/n6.h5" "$dir/few.h5" -o "$dir/few.html" --data "$dir/few"
    expect 0
    has "$dir/few.html" "2 records in the order of their times, 4 prompts at settings"
    has "$dir/few.html" "tokens were others than before at another one 0 times"
    has "$dir/few.html" "concurrency 3</text>"
    cut -f 5,9 "$dir/few/time.tsv" | sort >"$dir/got"
    printf 'a1\t3\na1\t3\na1\t6\na1\t6\nsign\tconcurrency\n' >"$dir/want"
    same_files "$dir/want" "$dir/got"
}

# What another system answered on four days: its log-probabilities move on the third, with another system_fingerprint, and a token on the fourth.
responses() {
    python3 - "$dir" <<'PY'
import json, sys
def day(n, created, system, shift, third):
    with open(f"{sys.argv[1]}/day{n}.jsonl", "w", encoding="utf-8") as f:
        for r in range(3):
            words = [" a", " b", " c" if r or not third else third]
            content = [{"token": w, "logprob": -0.25 - r / 8 - (shift if k == 1 else 0), "top_logprobs": [
                {"token": w, "logprob": -0.25 - r / 8 - (shift if k == 1 else 0)}, {"token": " z", "logprob": -2.0}]} for k, w in enumerate(words)]
            body = {"id": f"chatcmpl-{n}{r}", "model": "toy <1>", "choices": [{"index": 0, "finish_reason": "length", "logprobs": {"content": content}}]}
            if created:
                body["created"] = created + r
            if system:
                body["system_fingerprint"] = system
            f.write(json.dumps({"custom_id": f"ticket-{r}", "response": {"body": body}}) + "\n")
day(1, 1717400000, "fp_a", 0, None)
day(2, 1717486400, "fp_a", 0, None)
day(3, 1717572800, "fp_b", 0.125, None)
day(4, 1717659200, "fp_b", 0.125, " d")
day(5, 0, None, 0, None)
PY
}

test_responses_of_another_system_over_time() {
    need python3
    responses
    ds report "$dir/day3.jsonl" "$dir/day1.jsonl" "$dir/day4.jsonl" "$dir/day2.jsonl" -o "$dir/week.html" --data "$dir/numbers"
    expect 0
    [ "$(page "$dir/week.html")" -eq 1 ]
    has "$dir/week.html" "4 records in the order of their times, 3 prompts at settings"
    has "$dir/week.html" "Tokens changed 1 time, logits alone 3 times."
    has "$dir/week.html" ">ticket-0</text>"
    has "$dir/week.html" "toy &lt;1&gt;; 2024-06-03T07:33:20Z; system fingerprint fp_a"
    has "$dir/week.html" "<td>system_fingerprint</td><td>fp_a</td><td>fp_b</td>"
    # exp(-0.25) - exp(-0.375) on the third day
    python3 - "$dir/numbers/time.tsv" <<'PY'
import math, sys
lines = [l.rstrip("\n").split("\t") for l in open(sys.argv[1], encoding="utf-8")]
rows = [dict(zip(lines[0], l)) for l in lines[1:]]
assert len(rows) == 12, rows
signs = {}
for r in rows:
    signs.setdefault(r["series"], []).append(r["sign"])
assert sorted(signs.values()) == [["a1", "a1", "a2", "a2"]] * 2 + [["a1", "a1", "a2", "b3"]], signs
off = [float(r["max_prob_divergence"]) for r in rows if r["start"].startswith("2024-06-05")]
assert abs(max(off) - (math.exp(-0.25) - math.exp(-0.375)) / 3) < 1e-7, off
PY
    # The load is a label: of a file by hand, of a line by itself.
    sed 's/"custom_id": "ticket-1"/"concurrency": 8, &/' "$dir/day4.jsonl" >"$dir/load.jsonl"
    ds report "$dir/day1.jsonl" "$dir/load.jsonl" --concurrency 1,4 -o "$dir/load.html" --data "$dir/load"
    expect 0
    has "$dir/load.html" "tokens were others than before at another one 1 time."
    grep -v day1 "$dir/load/time.tsv" | cut -f 5,9 | sort >"$dir/got"
    printf 'a2\t4\na2\t8\nb2\t4\nsign\tconcurrency\n' >"$dir/want"
    same_files "$dir/want" "$dir/got"
    ds report "$dir/day1.jsonl" "$dir/day2.jsonl" --concurrency 1,2,3 -o "$dir/none.html"
    expect 2
    has "$dir/err" "--concurrency has 3 numbers for 2 files"
    sed 's/"custom_id": "ticket-1"/"concurrency": "many", &/' "$dir/day4.jsonl" >"$dir/many.jsonl"
    ds report "$dir/day1.jsonl" "$dir/many.jsonl" -o "$dir/none.html"
    expect 2
    has "$dir/err" 'many.jsonl, line 2: "concurrency" is no whole number'
    # Where nobody says when, the file does; what is of two kinds, or alone, is no chart.
    ds report "$dir/day1.jsonl" "$dir/day5.jsonl" -o "$dir/two.html"
    expect 0
    has "$dir/two.html" "(when the file was written); system fingerprint not said"
    ds report "$dir/day1.jsonl"
    expect 2
    has "$dir/err" "one file of responses"
    ds run $small --batch 1 --kernels pinned -o "$dir/a.h5"
    ds report "$dir/day1.jsonl" "$dir/a.h5"
    expect 2
    has "$dir/err" "a.h5 is no file of responses"
    ds report "$dir/a.h5" --concurrency 4
    expect 2
    has "$dir/err" "a record says its own"
    ds report "$dir/day1.jsonl" "$dir/day2.jsonl" --figure tree
    expect 2
    has "$dir/err" "--figure tree is of a record"
    echo '{"choices": [' >>"$dir/day2.jsonl"
    ds report "$dir/day1.jsonl" "$dir/day2.jsonl" -o "$dir/none.html"
    expect 2
    has "$dir/err" "day2.jsonl, line 4: no JSON"
    [ ! -e "$dir/none.html" ]
}

test_hostile_names_and_damage() {
    need python3
    ds run $small --batch 1 --kernels pinned -o "$dir/a.h5"
    expect 0
    name='<script>alert(1)<'
    cp "$dir/a.h5" "$dir/$name\"&.h5"
    (cd "$dir" && "$driftscope" report "$name\"&.h5" "./$name\"&.h5" -o page.html)
    page "$dir/page.html" >"$dir/n"
    hasnt "$dir/page.html" "<script"
    has "$dir/page.html" "&lt;script&gt;"
    # What turns the direction of writing, ends a line or is no character would change what a reader sees, or break the page.
    name=$(printf 'a\342\200\256b\302\205c\357\277\276.h5')
    cp "$dir/a.h5" "$dir/$name"
    (cd "$dir" && "$driftscope" report "$name" "./$name" -o page.html)
    page "$dir/page.html" >"$dir/n"
    has "$dir/page.html" 'a\xe2\x80\xaeb\xc2\x85c\xef\xbf\xbe.h5'
    ! grep -q "$(printf '\342\200\256')" "$dir/page.html"
    head -c 20000 "$dir/a.h5" >"$dir/cut.h5"
    ds report "$dir/a.h5" "$dir/cut.h5" -o "$dir/none.html"
    expect 2
    has "$dir/err" "cut.h5"
    [ ! -e "$dir/none.html" ]
    ds report "$dir/a.h5" -o "$dir/none.html" --data "$dir/a.h5"
    expect 2
    [ ! -e "$dir/none.html" ]
    ds report "$dir/a.h5" --figure tea
    expect 2
}

# browser FILE WIDTH ARGUMENT...: opens a page in a headless Chromium.
browser() {
    file=$1 width=$2
    shift 2
    timeout 240 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars \
        --user-data-dir="$dir/profile" --window-size="$width,900" "$@" "file://$file" 2>"$dir/browser.err"
}

test_opened_in_a_browser() {
    need python3
    need chromium
    ds run $small --batch 1,8 --kernels vendor+matmul=split-k -o "$dir/a.h5"
    expect 1
    ds storm $flips --requests 12 --rate 0.7 -o "$dir/b.h5" --compare split,pinned
    expect 1
    ds report "$dir/a.h5" "$dir/b.h5" -o "$dir/page.html"
    expect 0
    # The page itself must not run a script: what is asked of it here is asked of a copy.
    python3 - "$dir/page.html" "$dir/asked.html" <<'PY'
import re, sys
page = open(sys.argv[1], encoding="utf-8").read()
asked, n = re.subn(r"<meta http-equiv[^>]*>", "", page)
assert n == 1, "no policy in the page"
open(sys.argv[2], "w", encoding="utf-8").write(asked.replace("</body>", """<script>
var root = document.documentElement, drawn = 0;
document.querySelectorAll("svg").forEach(function (e) {
    var box = e.getBoundingClientRect();
    drawn += box.width > 200 && box.height > 60;
});
root.setAttribute("data-wide", root.scrollWidth > root.clientWidth);
root.setAttribute("data-drawn", drawn);
</script></body>"""))
PY
    browser "$dir/asked.html" 1200 --dump-dom >"$dir/dom" || skip "chromium does not start here: $(tail -n 1 "$dir/browser.err")"
    drawings=$(page "$dir/page.html")
    for width in 1200 700 500; do
        browser "$dir/asked.html" $width --dump-dom >"$dir/dom"
        has "$dir/dom" 'data-wide="false"' # the page never scrolls sideways
        has "$dir/dom" "data-drawn=\"$drawings\""
    done
    # Light and dark: a picture with text in it, on the ground that was asked for.
    for scheme in 0 1; do
        browser "$dir/page.html" 900 --blink-settings=preferredColorScheme=$scheme --screenshot="$dir/$scheme.png" >"$dir/dom"
        [ -s "$dir/$scheme.png" ]
    done
    python3 - "$dir/0.png" "$dir/1.png" <<'PY'
import struct, sys, zlib

def ground(path):
    """Width, the corner's brightness, how many different pixels, of an 8-bit PNG."""
    data = open(path, "rb").read()
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
    at, idat, head = 8, b"", None
    while at < len(data):
        n, kind = struct.unpack_from(">I4s", data, at)
        body = data[at + 8:at + 8 + n]
        head = struct.unpack(">IIBBBBB", body) if kind == b"IHDR" else head
        idat += body if kind == b"IDAT" else b""
        at += 12 + n
    width, height, depth, color = head[:4]
    step = {2: 3, 6: 4}[color]
    assert depth == 8
    raw, line, rows = zlib.decompress(idat), width * step, []
    before = bytearray(line)
    for y in range(height):
        kind, now = raw[y * (line + 1)], bytearray(raw[y * (line + 1) + 1:(y + 1) * (line + 1)])
        for i in range(line):
            a, b, c = now[i - step] if i >= step else 0, before[i], before[i - step] if i >= step else 0
            p = a + b - c
            near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
            now[i] = (now[i] + (0, a, b, (a + b) // 2, near)[kind]) & 255
        rows.append(before := now)
    pixels = {bytes(r[i:i + 3]) for r in rows for i in range(0, line, step)}
    return width, sum(rows[5][:3]) / 3, len(pixels)

for path, dark in zip(sys.argv[1:], (True, False)):
    width, bright, different = ground(path)
    assert width == 900 and different > 20, (width, different)
    assert bright < 60 if dark else bright > 230, (path, bright)
PY
}

run_tests
