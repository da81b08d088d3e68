# test_lock.sh: lock, verify, run --expect: golden digests, what they allow, what breaks them, and locks that are none.
. tests/cli/lib.sh

model=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
ask="-m $model --tokens 5,9,1,44,23,8,2,60,31 -n 3 --threads 1"
# Split-k adds in as many parts as few rows leave room for: a drift that is known, the same on every machine.
split="--batch 1,8 --kernels vendor+matmul=split-k+rmsnorm=reference"

locked() { # locked NAME ARGUMENT...: $dir/NAME.lock
    name=$1
    shift
    ds lock $ask "$@" -o "$dir/$name.lock"
    expect 0
}

# verified CODE NAME ARGUMENT...: verify says so.
verified() {
    code_wanted=$1 name=$2
    shift 2
    ds verify "$dir/$name.lock" -m "$model" "$@"
    expect "$code_wanted"
}

# with_lock NAME COMMAND...: another lock, made of a.lock by sed.
with_lock() {
    name=$1
    shift
    sed "$@" "$dir/a.lock" >"$dir/$name.lock"
    ! cmp -s "$dir/a.lock" "$dir/$name.lock" || {
        say "sed changed nothing: $*"
        return 1
    }
}

# rekeyed NAME: the lock with the key that its lines have, as another version would have written it.
rekeyed() {
    key=$(sed -n 's/^key //p' "$dir/$1.lock" | head -n 1)
    verified 2 "$1"
    has "$dir/err" "does not agree with itself: its key is $key"
    sed -i "s/^key .*/key $(sed -n 's/.*its kernels have //p' "$dir/err")/" "$dir/$1.lock"
}

last() { tail -n 1 "$dir/out" >"$dir/last" && has "$dir/last" "$1"; }

test_known_drift_is_green_and_locks_are_stable() {
    locked a $split
    last "lock: $dir/a.lock: entry "
    key=$(sed -n 's/^key  *//p' "$dir/out")
    has "$dir/a.lock" "key $key"
    has "$dir/a.lock" "class matmul/split-k batch 1|8"
    has "$dir/a.lock" "origin matmul/split-k q_proj kind=rounding-order max_ulp="
    locked b $split
    same_files "$dir/a.lock" "$dir/b.lock"
    verified 0 a
    has "$dir/out" "environment   that of the entry"
    tensors=$(grep -c '^tensor ' "$dir/a.lock")
    has "$dir/out" "compared      2 of the lock's 2 arms, $tensors tensors, 2 runs"
    has "$dir/out" "allowed       drift that the lock knows: 1 kernel with classes, "
    has "$dir/out" "logprobs      equal at 4 steps"
    last "verify: same: bits hold against entry "
    verified 0 a --same-env --assert 'fields=^(run|tensor|class|origin|step|env) '
    # A run with more arms, of which the lock's are compared; its record; a lock of it.
    ds run $ask --batch 1,2,8 --kernels vendor+matmul=split-k+rmsnorm=reference --slot first --neighbours copies --chunk 0 --mode prefill \
        --repeat 2 --expect "$dir/a.lock" -o "$dir/a.h5"
    expect 0
    has "$dir/out" "compared      2 of the lock's 2 arms, $tensors tensors, 2 runs"
    last "verify: same: bits hold"
    verified 0 a "$dir/a.h5"
    ds lock "$dir/a.h5" -o "$dir/c.lock"
    expect 0
    has "$dir/out" "verify -m $model $dir/c.lock"
    ds verify "$dir/c.lock" "$dir/a.h5"
    expect 0
    has "$dir/out" "3 of the lock's 3 arms"
    verified 0 a "$dir/b.lock"
    # Nothing is said of what was not asked again: an arm that is not run, heal trials that are left out.
    origins=$(grep -c '^origin ' "$dir/a.lock")
    parts="$ask --kernels vendor+matmul=split-k+rmsnorm=reference --slot first --neighbours copies --chunk 0 --mode prefill --expect $dir/a.lock"
    ds run $parts --batch 1 --repeat 2 -o "$dir/d.h5"
    expect 2
    has "$dir/out" "not compared: 0 tensors, 1 runs, $origins origins; classes of "
    has "$dir/out" "not compared: arm 1 of the lock, batch=8"
    hasnt "$dir/out" "do not start any more"
    last "verify: incomparable: bits hold against entry "
    last "; not compared: 1 arm of the lock: --partial says that the rest will do"
    ds run $parts --batch 1 --repeat 2 --no-record --partial
    expect 0
    last "; not compared: 1 arm of the lock"
    # Without heal trials no origin behind the first would have shown.
    ds run $parts --batch 1,8 --repeat 2 --no-heal -o "$dir/e.h5"
    expect 2
    has "$dir/out" "not compared: 0 tensors, 0 runs, "
    hasnt "$dir/out" "do not start any more"
    tail -n 1 "$dir/out" | grep -qE 'not compared: [0-9]+ lists? of classes and [0-9]+ origins? of the lock: --partial'
    # Tokens are those of the base arm; a drift is one whatever was left out.
    verified 0 a "$dir/d.h5" --assert tokens
    verified 0 a "$dir/d.h5" --partial
    verified 2 a "$dir/d.h5"
    sed 's/^\(tensor 0 q_proj [^ ]* \).*/\10123456789abcdef/' "$dir/a.lock" >"$dir/other.lock"
    verified 1 other "$dir/d.h5"
    # With all of it asked, a drift that is gone is told.
    sed 's/^origin .* gate /origin matmul\/split-k gone /;s/^\(count origins\) .*/\1 '"$origins"'/' "$dir/a.lock" >"$dir/gone.lock"
    verified 1 gone
    has "$dir/out" "1 drift that the lock allows and that do not start any more"
    # Without the lock the same run is a drift.
    ds show "$dir/a.h5"
    expect 1
}

test_everything_new_is_red_and_named() {
    locked a $split
    with_lock bound -E 's/^(origin [^ ]+ down .*max_ulp=)[0-9]+/\11/'
    verified 1 bound
    has "$dir/out" "bound         origin matmul/split-k down"
    has "$dir/out" "ULP, and was 1 at most"
    last "verify: drift: origin matmul/split-k down: "
    with_lock above -E 's/^(origin [^ ]+ down .*max_ulp=)[0-9]+/\14000000000/'
    verified 0 above
    with_lock kind -E '/^origin [^ ]+ gate /s/kind=[a-z-]+/kind=lower-precision/'
    verified 1 kind
    has "$dir/out" "kind          origin matmul/split-k gate"
    has "$dir/out" "rounding-order, and was lower-precision"
    with_lock origin -e '/^origin [^ ]* up /d' -e 's/^count origins 7/count origins 6/'
    verified 1 origin
    has "$dir/out" "origin        origin matmul/split-k up"
    with_lock layers '/^origin [^ ]* up /s/layers=2/layers=1/'
    verified 1 layers
    has "$dir/out" "in 2 layers, and was in 1"
    with_lock class 's/^class matmul\/split-k batch 1|8/class matmul\/split-k batch 1,8/'
    verified 1 class
    has "$dir/out" "class         class matmul/split-k batch: 1|8, was 1,8"
    has "$dir/out" "1 and 8 agreed, and do not"
    with_lock fewer 's/^class rope\/reference batch 1,8/class rope\/reference batch 1|8/'
    verified 0 fewer
    has "$dir/out" "note          class rope/reference batch: 1,8, was 1|8"
    with_lock tensor -E 's/^(tensor 1 (k_proj|attn_out) [^ ]+) .*/\1 0123456789abcdef/'
    verified 1 tensor
    has "$dir/out" "first drift   layer 1 k_proj, matmul/split-k: origin"
    has "$dir/out" "tensors before it have the lock's bits; 2 of $(grep -c '^tensor ' "$dir/a.lock") have not"
    has "$dir/out" "the environment is the lock's"
    last "verify: drift: first at layer 1 k_proj, matmul/split-k"
    verified 0 tensor --assert tokens
    verified 0 tensor --assert 'fields=^class'
    verified 1 tensor --assert 'fields=^tensor 1 attn'
    last "verify: drift: tensor 1 attn_out: "
    with_lock token 's/^\(step 2 token=\)[0-9]*/\1511/'
    verified 1 token
    has "$dir/out" "tokens        3 of 4 choices equal; the first other one at step 2"
    verified 1 token --assert tokens
    last "verify: drift: step 2: token "
    verified 0 token --assert 'fields=^tensor'
    with_lock run 's/^run 1 .*/run 1 0123456789abcdef/' # an arm that may drift has other bits
    verified 0 run
    has "$dir/out" "note          1 arm beside the base arm with other bits"
}

# An entry that lost lines: the run digest holds what no tensor holds any more, and classes alone are no bits.
test_entries_that_lost_lines() {
    locked a $split
    with_lock tensors '/^tensor /d'
    verified 2 tensors
    has "$dir/err" "$dir/tensors.lock:$(grep -n '^count tensors' "$dir/tensors.lock" | cut -d : -f 1): entry "
    has "$dir/err" "does not agree with itself: 'count tensors' is 41, and it has 0"
    ds run $ask $split --slot first --neighbours copies --chunk 0 --mode prefill --repeat 2 --expect "$dir/tensors.lock" -o "$dir/never.h5"
    expect 2
    [ ! -e "$dir/never.h5" ] # it is told before the run
    ds lock --add -m "$model" -o "$dir/tensors.lock"
    expect 2
    cp "$dir/tensors.lock" "$dir/again.lock"
    ds lock --update -m "$model" -o "$dir/again.lock" # and that mends it
    expect 0
    same_files "$dir/a.lock" "$dir/again.lock"
    # Of a version that did not count its lines:
    old='/^count \(classes\|environment\|kernels\|nonfinite\|origins\|runs\|steps\|tensors\)/d'
    with_lock tensors -e "$old" -e '/^tensor /d'
    verified 0 tensors
    with_lock base -e "$old" -e '/^tensor 0 q_proj/d' -e 's/^run 0 .*/run 0 0123456789abcdef/'
    verified 1 base
    has "$dir/out" "base          run 0"
    last "verify: drift: run 0: the base arm has other bits, in a tensor that the entry does not have"
    verified 0 base --assert tokens
    with_lock neither -e "$old" -e '/^tensor /d' -e '/^run 1/d' -e 's/^run 0 .*/run 0 unstable/' -e 's/^\(class matmul.split-k repeat\) same/\1 unstable/'
    verified 2 neither
    has "$dir/err" "it has no 'run 1'"
    # Tensors are those of the base arm: another one in its place is no drift, and no agreement.
    ds run $ask --batch 8,1 --kernels vendor+matmul=split-k+rmsnorm=reference --slot first --neighbours copies --chunk 0 --mode prefill \
        --repeat 2 --expect "$dir/a.lock" --no-record
    expect 2
    has "$dir/err" "the lock's base arm is here, but not as the first one"
    # What this program does not know was not asked.
    with_lock newer 's/^option steps .*/&\noption subtlety 2/'
    rekeyed newer
    verified 2 newer
    has "$dir/err" "'option subtlety' is 2, in this run it is 0"
    # A record of other sites has another run digest, and that is no drift.
    ds run $ask $split --slot first --neighbours copies --chunk 0 --mode prefill --repeat 2 --scores -o "$dir/scores.h5"
    expect 1
    verified 0 a "$dir/scores.h5"
    hasnt "$dir/out" "with other bits"
    has "$dir/out" "not compared: 0 tensors, 2 runs"
    # Fewer arms and sites than the lock has: what was not compared belongs to the answer.
    ds run $ask $split --batch 1 --slot first --neighbours copies --chunk 0 --mode prefill --repeat 2 \
        --sites resid -o "$dir/resid.h5"
    verified 2 a "$dir/resid.h5"
    tail -n 1 "$dir/out" |
        grep -qE 'verify: incomparable: .*; not compared: [0-9]+ arms? and [0-9]+ tensors of the lock: --partial'
    verified 0 a "$dir/resid.h5" --partial
    tail -n 1 "$dir/out" | grep -qE 'verify: same: .*; not compared: [0-9]+ arms? and [0-9]+ tensors of the lock$'
}

test_repeats_that_disagree() {
    ds lock $ask --batch 1 --repeat 6 --kernels pinned+matmul=atomic -o "$dir/a.lock"
    expect 0
    has "$dir/a.lock" "class matmul/atomic repeat unstable"
    has "$dir/a.lock" "run 0 unstable"
    verified 0 a
    has "$dir/out" "no bits to compare in "
    with_lock b 's/^class matmul\/atomic repeat unstable/class matmul\/atomic repeat same/'
    verified 2 b
    has "$dir/err" "'run 0' is unstable, and none of its kernels is"
    with_lock b -e 's/^class matmul\/atomic repeat unstable/class matmul\/atomic repeat same/' -e 's/^\(run\|tensor\)\(.*\) unstable$/\1\2 0123456789abcdef/'
    verified 1 b
    has "$dir/out" "unstable      class matmul/atomic repeat: unstable, was same"
}

# The environment is another one, though no bit depends on this variable.
test_entries_for_platforms() {
    locked a $split
    run env OMP_DYNAMIC=FALSE "$driftscope" verify "$dir/a.lock" -m "$model"
    expect 0
    has "$dir/out" "OMP_DYNAMIC: FALSE, was unset"
    last "made in another environment"
    run env OMP_DYNAMIC=FALSE "$driftscope" verify "$dir/a.lock" -m "$model" --same-env
    expect 2
    has "$dir/err" "no entry has this environment: of "
    has "$dir/err" "OMP_DYNAMIC was unset, is FALSE"
    with_lock other -E 's/^(tensor 0 q_proj [^ ]+) .*/\1 0123456789abcdef/'
    run env OMP_DYNAMIC=FALSE "$driftscope" verify "$dir/other.lock" -m "$model"
    expect 1
    has "$dir/out" "suspect: OMP_DYNAMIC"
    last "verify: drift: first at layer 0 q_proj, matmul/split-k; suspect: OMP_DYNAMIC"
    # The nearest entry has other bits, one of another platform has these.
    { sed '$d' "$dir/other.lock"; sed -n '/^entry /,$p' "$dir/a.lock" | sed 's/^entry .*/entry far/; s/^env machine .*/env machine other/'; } >"$dir/far.lock"
    verified 1 far
    has "$dir/out" "the bits are those of entry far"
    ds lock --add -m "$model" -o "$dir/a.lock"
    expect 2
    has "$dir/err" "has this environment already"
    # An entry that was named by its platform, made anew on another one, is named by that; a name that was given stays.
    platform=$(sed -n 's/^entry //p' "$dir/a.lock")
    for entry in other other-2 mine; do
        with_lock moved "s/^entry .*/entry $entry/; s/^env machine .*/env machine other/"
        ds lock --update -m "$model" -o "$dir/moved.lock"
        expect 0
        if [ $entry = mine ]; then
            has "$dir/moved.lock" "entry mine"
        else
            same_files "$dir/a.lock" "$dir/moved.lock"
            has "$dir/out" "- entry $entry"
            has "$dir/out" "+ entry $platform"
            has "$dir/err" "entry $entry was of another machine or core"
        fi
    done
    run env OMP_DYNAMIC=FALSE "$driftscope" lock --add --entry second -m "$model" -o "$dir/a.lock"
    expect 0
    [ "$(grep -c '^entry ' "$dir/a.lock")" -eq 2 ]
    [ "$(sed -n 's/^key //p' "$dir/a.lock" | sort -u | wc -l)" -eq 1 ] # of the question, not of the platform
    run env OMP_DYNAMIC=FALSE "$driftscope" verify "$dir/a.lock" -m "$model" --same-env
    expect 0
    has "$dir/out" "entry second, the nearest of 2"
    verified 0 a --same-env
    hasnt "$dir/out" "entry second"
    verified 0 a --entry second
    has "$dir/out" "another one: 1 of "
    # Made anew: nothing, then what was changed by hand, and nothing else.
    cp "$dir/a.lock" "$dir/before.lock"
    ds lock --update -m "$model" -o "$dir/a.lock"
    expect 0
    last " unchanged"
    sed 's/^\(class matmul.split-k batch\) 1|8/\1 1,8/; s/^run 0 .*/run 0 0123456789abcdef/' "$dir/before.lock" >"$dir/a.lock"
    ds lock --update -m "$model" -o "$dir/a.lock"
    expect 0
    has "$dir/out" "- class matmul/split-k batch 1,8"
    has "$dir/out" "+ class matmul/split-k batch 1|8"
    has "$dir/out" "- run 0 0123456789abcdef"
    [ "$(grep -c '^[-+] ' "$dir/out")" -eq 4 ]
    last " updated: 2 lines changed"
    ds lock --update --entry second --batch 4 -m "$model" -o "$dir/a.lock"
    expect 2
    has "$dir/err" "--batch cannot be given here: the lock says what is asked"
    ds lock $ask $split -o "$dir/a.lock"
    expect 2
    has "$dir/err" "is there already"
}

test_the_key_is_that_of_the_question() {
    locked a --batch 1
    locked b --batch 1 --kernels pinned
    locked c --batch 1 -n 2
    locked d --batch 1,2
    ds lock $ask --batch 1 --tokens 7,7 -o "$dir/e.lock" # the first prompt alone is asked, and a neighbour is there
    expect 0
    ds lock -m "$model,seed=3" --tokens 5,9,1,44,23,8,2,60,31 -n 3 --threads 1 --batch 1 -o "$dir/f.lock"
    expect 0
    [ "$(cat "$dir"/?.lock | grep '^key ' | sort -u | wc -l)" -eq 6 ]
}

# On two cores of OpenBLAS the classes are what two locks say; verify must name each that moved, and no other.
test_another_core_names_the_moved_classes() {
    need python3
    [ "$(uname -m)" = x86_64 ] && grep -q avx2 /proc/cpuinfo || skip "no CPU that runs OpenBLAS's cores Haswell and Nehalem"
    for core in Haswell Nehalem; do
        run env OPENBLAS_CORETYPE=$core "$driftscope" lock $ask --batch 1,2,3,4 --threads 1,2 -o "$dir/$core.lock"
        expect 0
        grep -q "^env blas_core $core" "$dir/$core.lock" || skip "no OpenBLAS here that has its core chosen"
    done
    moved=0
    for pair in "Haswell Nehalem" "Nehalem Haswell"; do
        was=${pair% *} is=${pair#* }
        run env OPENBLAS_CORETYPE=$is "$driftscope" verify "$dir/$was.lock" -m "$model" --json
        [ "$code" -le 1 ] || expect 1
        python3 - "$dir/$was.lock" "$dir/$is.lock" "$dir/out" "$code" <<'PY'
import json, sys
was, now = ({k: v for k, v in ((" ".join(w[:3]), w[3:]) for w in (line.split() for line in open(f)) if w and w[0] == "class")}
            for f in sys.argv[1:3])
tensors = [[line.split() for line in open(f) if line.startswith("tensor ")] for f in sys.argv[1:3]]
first = next((a for a, b in zip(*tensors) if a != b), None)
v = json.load(open(sys.argv[3], encoding="utf-8"))
assert v["schema"] == "driftscope.verify/1" and v["compared"]["tensors"] == len(tensors[0]), v
moved = {k for k in was if was[k] != now[k]}
named = {f["line"] for f in v["findings"] if f["line"].startswith("class ")}
assert named == moved, (named, moved)
names = [x["name"] for x in v["environment"]["differences"]]
assert names[0] == "OPENBLAS_CORETYPE" and "blas_core" in names, names
if first is None:
    assert v["first_drift"] is None, v["first_drift"]
else:
    assert v["first_drift"]["line"] == " ".join(first[:3]) and v["first_drift"]["kernel"] == first[3] == "matmul/openblas", v["first_drift"]
    assert v["result"] == "drift" and sys.argv[4] == "1", v["result"]
print("moved: %d classes; first %s" % (len(moved), first))
PY
    done
    run env OPENBLAS_CORETYPE=Nehalem "$driftscope" lock --add -m "$model" -o "$dir/Haswell.lock"
    expect 0
    for core in Haswell Nehalem; do # each against its own entry, and neither gate stays red
        run env OPENBLAS_CORETYPE=$core "$driftscope" verify "$dir/Haswell.lock" -m "$model" --same-env
        expect 0
    done
}

test_another_library_is_the_suspect() {
    need gcc
    for k in 1 2; do # two versions of one library, the second adds upwards
        mkdir "$dir/$k"
        sed "$([ $k = 1 ] || echo 's/for (int i = k - 1; i >= 0; i--)/for (int i = 0; i < k; i++)/')" tests/plugins/cblas.c >"$dir/$k/blas.c"
        gcc -std=c11 -D_GNU_SOURCE -O1 -fPIC -shared -o "$dir/$k/blas.so" "$dir/$k/blas.c"
    done
    cmp -s "$dir/1/blas.c" "$dir/2/blas.c" && return 1
    locked a --batch 1 --kernels pinned+matmul=cblas --blas "$dir/1/blas.so"
    verified 0 a --blas "$dir/1/blas.so"
    verified 1 a --blas "$dir/2/blas.so"
    has "$dir/out" "first drift   layer 0 q_proj, matmul/cblas: origin"
    last "verify: drift: first at layer 0 q_proj, matmul/cblas; suspect: cblas"
    verified 2 a
    has "$dir/err" "no library was given"
}

# A kernel's sources over twelve commits, one of which adds in another order; each is built and judged.
test_git_bisect_finds_the_commit() {
    need gcc
    need git
    repo=$dir/repo
    mkdir "$repo"
    cp kernels/driftscope_kernel.h examples/plugin/pairwise.c "$repo"
    g() { HOME=$dir GIT_CONFIG_NOSYSTEM=1 git -C "$repo" -c user.name=t -c user.email=t@example.org -c commit.gpgsign=false "$@" >>"$dir/git" 2>&1; }
    g init
    for k in 1 2 3 4 5 6 7 8 9 10 11 12; do
        echo "/* change $k: $(seq -s ' ' $k) */" >>"$repo/pairwise.c"
        [ $k -ne 8 ] || sed -i 's/for (int64_t k = 0; k < n; k++)/for (int64_t k = n; k-- > 0;)/' "$repo/pairwise.c"
        [ $k -ne 3 ] || echo "this does not compile" >>"$repo/pairwise.c" # skipped
        [ $k -ne 4 ] || sed -i '/does not compile/d' "$repo/pairwise.c"
        g add -A
        g commit -m "change $k"
        [ $k -ne 8 ] || planted=$(git -C "$repo" rev-parse HEAD)
    done
    cat >"$dir/judge" <<JUDGE
#!/bin/sh
gcc -std=c11 -O1 -ffp-contract=off -fPIC -shared -I. -o ../mine.so pairwise.c 2>/dev/null || exit 125
exec "$driftscope" verify "$dir/a.lock" -m "$model" --plugin ../mine.so --error-exit 125 -q
JUDGE
    chmod +x "$dir/judge"
    first=$(git -C "$repo" rev-list --max-parents=0 HEAD)
    git -C "$repo" checkout -q "$first"
    gcc -std=c11 -O1 -ffp-contract=off -fPIC -shared -I"$repo" -o "$dir/mine.so" "$repo/pairwise.c"
    locked a --batch 1 --kernels pinned+matmul=pairwise --plugin "$dir/mine.so"
    git -C "$repo" checkout -q -
    g bisect start HEAD "$first"
    HOME=$dir GIT_CONFIG_NOSYSTEM=1 git -C "$repo" bisect run "$dir/judge" >"$dir/out" 2>"$dir/err"
    has "$dir/out" "$planted is the first bad commit"
    has "$dir/out" "first drift   layer 0 q_proj, matmul/pairwise: origin"
}

# The figures against the same ones worked out from the lines of two locks, one of which is bent.
test_logprobs_of_two_locks() {
    need python3
    locked a --batch 1 -n 11
    python3 - "$dir/a.lock" "$dir/b.lock" <<'PY'
import re, sys
out = []
for n, line in enumerate(open(sys.argv[1])):
    m = re.match(r"step (\d+) ", line)
    if m and int(m[1]) >= 3: # the chosen token gains, the second one loses
        k = int(m[1])
        head, top = line.rstrip("\n").split(" top=")
        pairs = [p.split(":") for p in top.split(",")]
        pairs[0][1] = "%.10g" % (float(pairs[0][1]) + 0.001 * k)
        pairs[1][1] = "%.10g" % (float(pairs[1][1]) - 0.002 * k)
        line = head.replace("noise=0", "noise=%g" % (0.0001 * k)) + " top=" + ",".join(":".join(p) for p in pairs) + "\n"
    out.append(re.sub(r"^(tensor \d+ logits .* ).*", r"\g<1>0123456789abcdef", line)) # of other logits
open(sys.argv[2], "w").writelines(out)
PY
    ds verify "$dir/a.lock" "$dir/b.lock" --json
    expect 1
    last "}" # the bent logits, and nothing else
    [ "$(grep -c '"counts": true' "$dir/out")" -eq 1 ]
    sed -i "s/^tensor 2 logits .*/$(grep '^tensor 2 logits ' "$dir/a.lock" | sed 's:/:\\/:g')/" "$dir/b.lock"
    ds verify "$dir/a.lock" "$dir/b.lock" # numbers that were bent by hand: equal logits have equal ones
    expect 1
    has "$dir/out" "the logits have the lock's bits, and its numbers of them are others"
    ds verify "$dir/a.lock" "$dir/b.lock" --assert tokens --json
    expect 0
    python3 - "$dir/a.lock" "$dir/b.lock" "$dir/out" <<'PY'
import json, math, sys
def steps(path):
    s = []
    for line in open(path):
        if line.startswith("step "):
            f = dict(x.split("=") for x in line.split()[2:])
            s.append((int(f["token"]), float(f["noise"]), {int(i): float(l) for i, l in (p.split(":") for p in f["top"].split(","))}))
    return s
a, b = steps(sys.argv[1]), steps(sys.argv[2])
got = json.load(open(sys.argv[3], encoding="utf-8"))["logprobs"]
assert len(a) == 12 and got["steps"] == 12, got
d = [x[2][x[0]] - y[2][x[0]] for x, y in zip(a, b)]
size = sorted(abs(x) for x in d)
def quantile(q):
    at = q * (len(size) - 1)
    low = int(at)
    return size[low] + (at - low) * (size[min(low + 1, len(size) - 1)] - size[low])
def kl(p, q):
    s = sum(math.exp(p[i]) * (p[i] - q[i]) for i in p)
    rp, rq = 1 - sum(map(math.exp, p.values())), 1 - sum(map(math.exp, q.values()))
    return s + rp * math.log(rp / rq)
want = {"kl": sum(kl(x[2], y[2]) for x, y in zip(a, b)) / 12, "kl_most": max(kl(x[2], y[2]) for x, y in zip(a, b)),
        "k1": sum(d) / 12, "k2": sum(x * x / 2 for x in d) / 12, "k3": sum(math.expm1(-x) + x for x in d) / 12,
        "mean": sum(size) / 12, "max": size[-1], "p50": quantile(0.5), "p99": quantile(0.99), "mean_ratio": sum(map(math.exp, size)) / 12}
for name, x in want.items():
    assert abs(got[name] - x) <= 1e-8 * max(1e-3, abs(x)), (name, got[name], x)
assert got["first_divergence"] == 3 and got["worst"] == 11 and got["noise_values"] == 24, got
assert got["not_listed"] == 0 and 0 < got["p_noise"] < 0.001 and got["larger_than_noise"] > 0.7, got
PY
    ds verify "$dir/a.lock" "$dir/a.lock" --json
    expect 0
    has "$dir/out" '"p_noise": 1.0'
}

# bad TEXT EDIT...: a.lock after sed is an error, exit code 2, that names the file, a line, and what is wrong.
bad() {
    text=$1
    shift
    with_lock bad "$@"
    verified 2 bad
    empty "$dir/out"
    has "$dir/err" "$text"
    case $text in [0-9]*) has "$dir/err" "driftscope: $dir/bad.lock:$text" ;; *) has "$dir/err" "driftscope: $dir/bad.lock" ;; esac
}

test_hostile_locks() {
    locked a $split
    n=$(wc -l <"$dir/a.lock")
    line() { grep -n "^$1" "$dir/a.lock" | head -n 1 | cut -d : -f 1; }
    : >"$dir/empty.lock"
    verified 2 empty
    has "$dir/err" "$dir/empty.lock:1: the lock is empty"
    echo "<html>" >"$dir/html.lock"
    verified 2 html
    has "$dir/err" "$dir/html.lock:1: is no lock"
    verified 2 nowhere
    has "$dir/err" "cannot read lock"
    bad "1: is a lock of version 2; this program reads version 1" '1s/1/2/'
    bad "$((n - 1)): the lock was cut short" '$d'
    bad "$(line step): unknown word 'stepp'" 's/^step 0/stepp 0/'
    bad "hint: did you mean 'step'?" 's/^step 0/stepp 0/'
    bad "$(line 'step 1'): a merge that was not finished" 's/^step 1 .*/<<<<<<< HEAD/'
    bad "$(line 'step 1'): the value of 'step 1' is not token=ID" 's/^\(step 1 token=\)/\1x/'
    bad "$(line 'step 1'): 'step 0' stands in line $(line 'step 0') already" 's/^step 1/step 0/'
    bad "$(line tensor): the value of 'tensor -1 " '/^tensor -1/s/.$//'
    bad "$(line tensor): 'tensor' is followed by a number from -1" '0,/^tensor -1/s/^tensor -1/tensor -2/'
    bad "$(line 'tensor 0'): 'tensor' is followed by a number from -1" '0,/^tensor 0/s/^tensor 0/tensor nan/'
    bad "$(line origin): " '/^origin/s/max_ulp=/max_ulp=-/'
    bad "$(line class): the value of 'class " '/^class/s/$/|/'
    bad "$(line key): the value of 'key' is not 16 hex digits" 's/^key .*/key 12/'
    bad "$(line forced): the value of 'forced' is not token ids" 's/^forced .*/forced 1,,2/'
    bad "$(line 'model name'): 'env' belongs into an entry" 's/^model name .*/env a b/'
    bad "'arm' belongs before the first entry" '$i arm 7 batch=1'
    bad "$(line 'prompt 0'): 'prompt' is followed by a number" 's/^prompt 0/prompt zero/'
    bad "$(line 'prompt 0'): token 99999 is outside the model's vocabulary" 's/^prompt 0 5/prompt 0 99999/'
    bad "$(line forced): token 99999 is outside" 's/^forced .*/forced 99999/'
    bad "the lock has no prompt 0" 's/^prompt 0/prompt 1/'
    bad "$(line 'arm 0'): there is no factor 'spin'" 's/^arm 0 batch/arm 0 spin/'
    bad "$(line 'arm 0'): --batch: '0' is not" 's/^arm 0 batch=1/arm 0 batch=0/'
    bad "and no arm 0" 's/^arm 0/arm 2/'
    bad "$(line 'option steps'): 'many' is not a whole number" 's/^option steps .*/option steps many/'
    bad "$(line 'option steps'): " 's/^option steps .*/option steps 4000000000/'
    bad "steps" 's/^option steps .*/option steps 900000/' # beyond the model's context
    bad "$(line 'model digest'): the lock is of another model" 's/^model digest .*/model digest 0123456789abcdef/'
    bad "$(line 'hparam rope_base'): the lock is of another model: rope_base is 500 there" 's/^hparam rope_base .*/hparam rope_base 500/'
    bad "the lock has no line 'model digest'" '/^model digest/d'
    bad "$(line entry): unknown word 'entri'" 's/^entry/entri/'
    bad "$(line entry): an entry has one word as its name" 's/^entry .*/entry a b/'
    printf 'driftscope.lock 1\nmodel name \001\n' >"$dir/byte.lock"
    verified 2 byte
    has "$dir/err" "$dir/byte.lock:2: byte 0x01 in column 12 is no text"
    printf '\211HDF\r\n\032\n\003' >"$dir/record.lock"
    verified 2 record
    has "$dir/err" "'$dir/record.lock' is a record (HDF5), no lock"
    ds run -m "$model" -f "$dir/record.lock"
    expect 2
    has "$dir/err" "is a record (HDF5), no prompt file"
    printf 'driftscope.lock 1\nend\nmore\n' >"$dir/more.lock"
    verified 2 more
    has "$dir/err" "$dir/more.lock:3: there is something behind 'end'"
    ds verify "$dir/a.lock" -m "$model,seed=5"
    expect 2
    has "$dir/err" "$dir/a.lock:$(line 'model digest'): the lock is of another model"
    # The beginning of a lock is none, wherever it is cut.
    for bytes in 1 17 18 19 100 1000 2000 $(($(wc -c <"$dir/a.lock") - 2)); do
        head -c "$bytes" "$dir/a.lock" >"$dir/cut.lock"
        verified 2 cut
        has "$dir/err" "driftscope: $dir/cut.lock:"
    done
}

# How tokens are drawn belongs to the question.
test_drawn_tokens() {
    locked greedy --batch 1 -n 6
    locked a --batch 1 -n 6 --temperature 2.5 --top-k 40 --sample-seed 3
    has "$dir/a.lock" "option temperature 2.5"
    has "$dir/a.lock" "option sample_seed 3"
    [ "$(grep ^forced "$dir/a.lock")" != "$(grep ^forced "$dir/greedy.lock")" ]
    [ "$(grep ^key "$dir/a.lock")" != "$(grep ^key "$dir/greedy.lock")" ]
    verified 0 a
    ds run $ask -n 6 --batch 1 --slot first --neighbours copies --chunk 0 --mode prefill --repeat 1 --no-record --expect "$dir/a.lock"
    expect 2
    has "$dir/err" "nothing to compare: the lock's 'option temperature' is 2.5, here it is 0"
    with_lock bad 's/^option temperature .*/option temperature warm/'
    verified 2 bad
    has "$dir/err" "option temperature is no number"
    sed -i '/^option \(temperature\|top_\|min_p\|repetition\|sample_seed\)/d' "$dir/greedy.lock" # of a version without a sampler
    rekeyed greedy
    verified 0 greedy
    ds lock --update -m "$model" -o "$dir/greedy.lock"
    expect 0
}

test_what_cannot_be_compared() {
    locked a --batch 1
    ds verify "$dir/a.lock" -m "$model" --assert everything
    expect 2
    has "$dir/err" "--assert: 'everything' cannot be asserted"
    verified 2 a --assert 'fields=('
    has "$dir/err" "--assert: '('"
    verified 2 a --assert 'fields=^nothing'
    has "$dir/err" "nothing to compare"
    verified 2 a --assert text
    has "$dir/err" "there is no tokenizer at hand"
    verified 2 a --entry none
    has "$dir/err" "the lock has no entry none"
    short="--slot first --neighbours copies --chunk 0 --mode prefill --repeat 1 --no-record"
    ds run $ask --batch 1 $short -n 2 --expect "$dir/a.lock"
    expect 2
    has "$dir/err" "nothing to compare: the lock's 'option steps' is 3, here it is 2"
    has "$dir/err" "hint: -n 3"
    ds run -m "$model" --tokens 5,9 --threads 1 -n 3 --batch 1 $short --expect "$dir/a.lock"
    expect 2
    has "$dir/err" "the lock's 'prompt 0' is 5,9,1,44,23,8,2,60,31, here it is 5,9"
    ds run $ask --batch 2 $short --expect "$dir/a.lock"
    expect 2
    has "$dir/err" "no arm here is the lock's base arm"
    # Sites that the run leaves out are told.
    ds run $ask --batch 1 $short --sites resid --expect "$dir/a.lock"
    expect 2
    has "$dir/out" "not compared: "
    ds storm -m "$model" --tokens 5,9 --requests 2 -n 2 --compare pinned --threads 1 -o "$dir/storm.h5" -q
    expect 0
    ds lock "$dir/storm.h5" -o "$dir/b.lock"
    expect 2
    has "$dir/err" "a storm cannot be locked"
    ds lock $ask --add --update -o "$dir/a.lock"
    expect 2
}

# The tokenizer is the model's; text is held against text.
test_real_model() {
    [ -f "${DRIFTSCOPE_CACHE:-${XDG_CACHE_HOME:-${HOME:-}/.cache}/driftscope}/SmolLM2-135M-Instruct.Q4_1.gguf" ] ||
        skip "the real model is not in the cache"
    ds lock -p 'The sky is' -n 2 --threads 1 --repeat 1 -o "$dir/real.lock"
    expect 0
    has "$dir/real.lock" "text 0 The sky is"
    ds verify "$dir/real.lock" --assert text
    expect 0
    has "$dir/out" " $(grep -c '^tensor ' "$dir/real.lock") tensors"
    last "verify: same: text holds against entry "
    sed -i 's/^\(step 1 token=\)[0-9]*/\19/' "$dir/real.lock"
    ds verify "$dir/real.lock" --assert text
    expect 1
    last "verify: drift: step 1: token "
}

run_tests
