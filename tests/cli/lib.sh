# lib.sh: what every script in tests/cli includes: `. tests/cli/lib.sh`, functions test_*, then `run_tests`, which
# runs them all in the order of the file.
# Each test runs in a subshell with `set -eu` and an empty folder $dir of its own; the working directory is the repository root. It
# fails when a command fails; `skip REASON` ends it early. The output is cmocka's, so that tests/run reads both.

root=$(pwd -P)
driftscope=${DRIFTSCOPE:-$root/build/driftscope}
case $driftscope in /*) ;; *) driftscope=$root/$driftscope ;; esac
# The make that builds the same variant as the program under test; used with eval.
ds_make=${DS_MAKE:-make --no-print-directory BUILD=$(dirname "${driftscope#"$root"/}")}

# run COMMAND...: stdout in $dir/out, stderr in $dir/err, exit code in $code.
run() {
    code=0
    "$@" >"$dir/out" 2>"$dir/err" </dev/null || code=$?
}

# ds ARGUMENT...: the same for driftscope.
ds() { run "$driftscope" "$@"; }

say() { echo "    $*" >&2; }

# expect CODE: the last exit code.
expect() {
    [ "$code" -eq "$1" ] && return 0
    say "exit code $code, want $1; stdout and stderr were:"
    head -n 40 "$dir/out" "$dir/err" >&2
    return 1
}

# has FILE TEXT: the file has the text; hasnt: it has not.
has() {
    grep -qF -e "$2" "$1" && return 0
    say "$1 lacks: $2; it is:"
    head -n 40 "$1" >&2
    return 1
}
hasnt() {
    if grep -qF -e "$2" "$1"; then
        say "$1 has: $2"
        return 1
    fi
}
empty() {
    [ ! -s "$1" ] && return 0
    say "$1 is not empty:"
    head -n 40 "$1" >&2
    return 1
}
same_files() { diff -u "$1" "$2" >&2; }
need() { command -v "$1" >/dev/null 2>&1 || skip "no $1 here"; }
skip() {
    echo "$*" >"$dir/skipped"
    exit 0
}

# background ARGUMENT...: driftscope in the background, its process in $pid; `ended` waits for it, its exit code comes to $code.
background() {
    "$driftscope" "$@" >"$dir/out" 2>"$dir/err" </dev/null &
    pid=$!
}
ended() {
    code=0
    wait "$pid" || code=$?
}

# A test waits for what it waits for, not for a time: a loaded machine takes as long as it likes. Only what never comes is given up,
# after some five minutes, before tests/run ends the whole script. Tries are counted, not seconds: a clock may be set.
patience=6000

# eventually COMMAND...: until it holds. What `shown` shows then is said otherwise.
eventually() {
    tries=0
    until "$@" >/dev/null 2>&1; do
        tries=$((tries + 1))
        [ "$tries" -lt "$patience" ] || {
            say "it never held: $*"
            shown >&2
            return 1
        }
        sleep 0.05
    done
}
shown() { head -n 40 "$dir/out" "$dir/err"; }

# there FILE: until it is, which $pid makes; or $pid has ended.
there() { eventually is_there "$1"; }
is_there() { [ -e "$1" ] || ! kill -0 "$pid"; }

# bend FROM TO N: a record with one bit changed in each of N dumped rows, which lie one after the other as f32 values.
bend() {
    python3 -c '
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
# Dumped rows are the longest run of f32 values below 16 in size that are not zero.
best, start = (0, 0), None
for i in range(0, len(data) - 3, 4):
    v = struct.unpack_from("<f", data, i)[0]
    good = v == v and 1e-6 < abs(v) < 16
    start = i if good and start is None else start if good else None
    if good and i - start > best[0]:
        best = (i - start, start)
assert best[0] >= 512 * int(sys.argv[3]), best
for k in range(int(sys.argv[3])):
    data[best[1] + 512 * k + 128] ^= 1 # no row of this model is longer
open(sys.argv[2], "wb").write(data)' "$@"
}

run_tests() {
    failed=0
    # shellcheck disable=SC2046
    set -- $(sed -n 's/^\(test_[a-z0-9_]*\)() .*/\1/p' "$0")
    echo "[==========] Running $# test(s)."
    for name in "$@"; do
        echo "[ RUN      ] $name"
        dir=$(mktemp -d "${TMPDIR:-/tmp}/driftscope-test.XXXXXX") || exit 1
        # The subshell stands alone: inside a condition `set -e` would not hold.
        (set -eu; "$name")
        result=$?
        if [ "$result" -ne 0 ]; then
            echo "[  FAILED  ] $name"
            failed=1
        elif [ -f "$dir/skipped" ]; then
            echo "[  SKIPPED ] $name: $(cat "$dir/skipped")"
        else
            echo "[       OK ] $name"
        fi
        chmod -R u+rwx "$dir" 2>/dev/null
        rm -rf "$dir"
    done
    exit "$failed"
}
