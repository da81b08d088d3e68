# test_frame.sh: what holds for every verb: help, mistakes, exit codes, where output goes and what happens when it cannot.
. tests/cli/lib.sh

test_help_is_a_result() {
    for arguments in -h --help "help" "help kernels" "kernels -h" "kernels --help" "-h kernels" "help --man" "help --markdown"; do
        # shellcheck disable=SC2086
        ds $arguments
        expect 0
        [ -s "$dir/out" ]
        empty "$dir/err"
    done
    ds kernels --help
    has "$dir/out" "Examples:"
    has "$dir/out" "Exit codes:"
}

test_help_lists_only_verbs_that_exist() {
    ds -h
    expect 0
    for verb in $(sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p' "$dir/out"); do
        [ "$verb" = help ] || [ -f "cli/verb_$verb.c" ]
        echo "$verb" >>"$dir/verbs"
    done
    for file in cli/verb_*.c; do
        verb=${file#cli/verb_}
        has "$dir/verbs" "${verb%.c}"
    done
}

test_version() {
    ds --version
    expect 0
    grep -Eq '^driftscope [0-9]+\.[0-9]+\.[0-9]+ \([^)]+\)$' "$dir/out"
    [ "$(wc -l <"$dir/out")" -eq 1 ]
}

# Golden answers; DS_UPDATE_GOLDEN=1 writes them anew (read the difference before committing it).
test_golden_mistakes() {
    while IFS= read -r line; do
        echo "\$ driftscope $line"
        eval "ds $line"
        cat "$dir/out" "$dir/err"
        echo "exit $code"
    done >"$dir/got" <<'END'

rnu
kernel
kernels --jsn
kernels --json=1
kernels matmull
kernels matmul extra
kernels --batch 2
--batch 2 kernels
--color sometimes kernels
kernels -o
kernels -o --json
kernels -Z
kernels -json
run -model=x.gguf
report --batch 2
README.md
kernels --error-exit 1
kernels --error-exit=125 nothing
--error-exit=125 nothing
help nothing
help --completion csh
help --completion
END
    [ "${DS_UPDATE_GOLDEN:-}" != 1 ] || cp "$dir/got" tests/cli/golden/mistakes.txt
    same_files tests/cli/golden/mistakes.txt "$dir/got"
}

# A file of another kind than was asked for: the hint says what it is for, or where one of that kind comes from.
test_mistaken_files_have_a_hint() {
    mkdir "$dir/folder"
    echo text >"$dir/plain.txt"
    echo '{"choices": []}' >"$dir/answers.jsonl"
    printf '\040\0\0\0\0\0\0\0{"a": {"dtype": "F32"}}' >"$dir/model.safetensors"
    printf 'GGUF\003\0\0\0' >"$dir/short.gguf"
    printf '\211HDF\r\n\032\n' >"$dir/short.h5"
    ds run -m "$dir/model.safetensors"
    expect 2
    has "$dir/err" "hint: it looks like safetensors"
    ds run -m "$dir/folder"
    expect 2
    has "$dir/err" "hint: name the .gguf file"
    ds run -m "$dir/short.h5"
    expect 2
    has "$dir/err" "hint: if it is a record: driftscope show $dir/short.h5"
    ds run -m "$dir/plain.txt"
    expect 2
    has "$dir/err" "hint: models in other formats"
    ds run -m "$dir/some-org/some-model"
    expect 2
    has "$dir/err" "hint: a model is a .gguf file on this machine"
    ds show "$dir/short.gguf"
    expect 2
    has "$dir/err" "hint: it is a model: driftscope run -m $dir/short.gguf"
    ds show "$dir/plain.txt"
    expect 2
    has "$dir/err" "hint: a record is what run, storm and onpolicy write"
    ds show "$dir/folder"
    expect 2
    has "$dir/err" "hint: a record is one file"
    ds show "$dir/answers.jsonl"
    expect 2
    has "$dir/err" "hint: responses of an engine are read by driftscope fingerprint"
    echo driftscope.lock 1 >"$dir/drift.lock"
    ds show "$dir/drift.lock"
    expect 2
    has "$dir/err" "hint: it is a lock: driftscope verify $dir/drift.lock"
    run env DRIFTSCOPE_CACHE="$dir/folder" "$driftscope" run
    expect 2
    has "$dir/err" "hint: \`make model\` in a checkout downloads it; without: -m FILE.gguf"
}

test_golden_short_help() {
    ds help kernels
    expect 0
    [ "${DS_UPDATE_GOLDEN:-}" != 1 ] || cp "$dir/out" tests/cli/golden/help_kernels.txt
    same_files tests/cli/golden/help_kernels.txt "$dir/out"
}

test_mistakes_go_to_stderr_and_give_2() {
    for arguments in "" "nothing" "--nothing" "kernels --nothing" "kernels nothing" "help nothing"; do
        # shellcheck disable=SC2086
        ds $arguments
        expect 2
        empty "$dir/out"
        has "$dir/err" "driftscope: "
        has "$dir/err" "hint: "
    done
}

test_error_exit() {
    ds kernels nothing --error-exit=125
    expect 125
    ds --error-exit 125 kernels nothing
    expect 125
    ds kernels --error-exit=125
    expect 0
    ds --nothing --error-exit=125
    expect 125
}

test_global_options_on_both_sides() {
    ds --json kernels
    expect 0
    cp "$dir/out" "$dir/before"
    ds kernels --json
    expect 0
    same_files "$dir/before" "$dir/out"
}

test_json_parses_and_has_a_schema() {
    need python3
    ds kernels --json
    expect 0
    python3 -c '
import json, sys
data = json.load(sys.stdin)
assert data["schema"] == "driftscope.kernels/1"
ops = {k["op"] for k in data["kernels"]}
assert ops == set("embed rmsnorm matmul rope cache attention softmax silu_mul add router combine allreduce sample transfer schedule process".split()), ops
for k in data["kernels"]:
    assert k["variant"] and k["summary"] and isinstance(k["available"], bool), k
    assert k["available"] or k["reason"], k
pinned = [k for k in data["kernels"] if "pinned" in k["sets"]]
assert sorted(k["op"] for k in pinned) == sorted(ops), pinned
assert all({"repeat", "batch", "slot", "threads"} <= set(k["claims"]) for k in pinned), pinned
' <"$dir/out"
}

test_kernels_of_one_op() {
    ds kernels matmul
    expect 0
    has "$dir/out" "matmul/"
    hasnt "$dir/out" "rmsnorm/"
    tail -n 1 "$dir/out" | grep -Eq '^[0-9]+ variants, [0-9]+ of them cannot run here$'
}

test_colour_only_when_asked_for() {
    escape=$(printf '\033')
    ds kernels
    hasnt "$dir/out" "$escape"
    ds kernels --color=always
    has "$dir/out" "$escape"
    ds kernels --color=always --json
    hasnt "$dir/out" "$escape"
    ds kernels --color=never
    hasnt "$dir/out" "$escape"
}

# On a terminal colours come, NO_COLOR and TERM=dumb keep them away.
test_colour_on_a_terminal() {
    need script
    script -qec true /dev/null </dev/null >/dev/null 2>&1 || skip "no pseudo-terminal here"
    escape=$(printf '\033')
    script -qec "env TERM=xterm '$driftscope' kernels" "$dir/tty" </dev/null >/dev/null
    has "$dir/tty" "$escape"
    for setting in "TERM=xterm NO_COLOR=1" "TERM=dumb" "-u TERM"; do
        script -qec "env $setting '$driftscope' kernels" "$dir/tty" </dev/null >/dev/null
        hasnt "$dir/tty" "$escape"
    done
    script -qec "env TERM=xterm NO_COLOR= '$driftscope' kernels" "$dir/tty" </dev/null >/dev/null
    has "$dir/tty" "$escape"
}

test_output_file_appears_complete() {
    ds kernels
    cp "$dir/out" "$dir/want"
    ds kernels -o "$dir/list"
    expect 0
    empty "$dir/out"
    same_files "$dir/want" "$dir/list"
    mkdir "$dir/sub"
    ln -s ../list "$dir/sub/link"
    echo old >"$dir/list"
    chmod 640 "$dir/list"
    ds kernels -o "$dir/sub/link"
    expect 0
    [ -L "$dir/sub/link" ]
    same_files "$dir/want" "$dir/list"
    [ "$(stat -c %a "$dir/list")" = 640 ]
    ds kernels -o -
    expect 0
    same_files "$dir/want" "$dir/out"
    # Nothing is left beside.
    [ "$(ls -A "$dir/sub")" = link ]
}

test_output_file_that_cannot_be_written() {
    ds kernels -o "$dir"
    expect 2
    has "$dir/err" "is a folder"
    ds kernels -o "$dir/none/list"
    expect 2
    has "$dir/err" "$dir/none/list: cannot create: No such file"
    ds kernels -o /dev/full
    expect 2
    has "$dir/err" "/dev/full: cannot write: No space left"
    [ -c /dev/full ]
    echo old >"$dir/list"
    ds kernels nothing -o "$dir/list"
    expect 2
    [ "$(cat "$dir/list")" = old ]
}

# A record may be hours of a machine's work, a model a download: no text takes the place of either.
test_output_never_replaces_a_record_or_a_model() {
    ds run -m random:llama,layers=1,hidden=16,heads=1,ffn=16,vocab=16 --tokens 1,2 -n 0 --repeat 1 --batch 1 --threads 1 \
        --slot first --neighbours copies --chunk 0 --mode prefill --kernels pinned -o "$dir/a.h5"
    expect 0
    printf 'GGUF\003\000\000\000' >"$dir/m.gguf"
    ln -s a.h5 "$dir/link"
    cp "$dir/a.h5" "$dir/a.kept"
    cp "$dir/m.gguf" "$dir/m.kept"
    for file in a.h5 link m.gguf; do
        case $file in m*) what='a model' ;; *) what='a record' ;; esac
        for verb in 'kernels' 'show a.h5' 'show a.h5 --json' 'report a.h5' 'table a.h5' 'diff a.h5 a.h5' \
            'lock --force -m random:llama,layers=1,hidden=16,heads=1,ffn=16,vocab=16 --tokens 1,2 --threads 1'; do
            (
                cd "$dir"
                ds $verb -o $file
                expect 2
                has "$dir/err" "$file: is $what, which is not replaced by a text"
            )
        done
    done
    ds run -m random:llama,layers=1,hidden=16,heads=1,ffn=16,vocab=16 --tokens 1,2 --force -o "$dir/m.gguf"
    expect 2
    has "$dir/err" "m.gguf: is a model, which is not replaced"
    same_files "$dir/a.kept" "$dir/a.h5"
    same_files "$dir/m.kept" "$dir/m.gguf"
}

test_read_only_folder() {
    mkdir "$dir/ro"
    chmod 555 "$dir/ro"
    # Root may write there, but not in /proc.
    if [ -w "$dir/ro" ]; then cd /proc; else cd "$dir/ro"; fi
    ds kernels
    expect 0
    ds kernels -o list
    expect 2
    has "$dir/err" "list: cannot create: "
}

test_full_disk_on_stdout() {
    code=0
    "$driftscope" kernels >/dev/full 2>"$dir/err" || code=$?
    [ "$code" -eq 2 ]
    has "$dir/err" "cannot write to stdout: No space left on device"
}

test_broken_pipe_is_quiet() {
    # A reader that is gone before the first write: the fifo's only reader closes at once.
    { "$driftscope" help --man 2>"$dir/err"; echo $? >"$dir/code"; } | true
    empty "$dir/err"
    [ "$(cat "$dir/code")" -eq 0 ]
    { "$driftscope" help --man 2>"$dir/err"; echo $? >"$dir/code"; } | head -n 1 >/dev/null
    empty "$dir/err"
    [ "$(cat "$dir/code")" -eq 0 ]
}

test_closed_descriptors() {
    "$driftscope" kernels <&- >"$dir/out" 2>"$dir/err"
    empty "$dir/err"
    [ -s "$dir/out" ]
    code=0
    "$driftscope" kernels >&- 2>"$dir/err" || code=$?
    [ "$code" -eq 2 ]
    has "$dir/err" "cannot write to stdout"
    "$driftscope" kernels >"$dir/out" 2>&-
    [ -s "$dir/out" ]
    code=0
    "$driftscope" kernels nothing 2>&- >"$dir/out" || code=$?
    [ "$code" -eq 2 ]
    empty "$dir/out"
    code=0
    "$driftscope" kernels <&- >&- 2>&- || code=$?
    [ "$code" -eq 2 ]
    # The result file must not become descriptor 1 or 2.
    "$driftscope" kernels -o "$dir/list" <&- >&- 2>&-
    [ -s "$dir/list" ]
    hasnt "$dir/list" "driftscope: "
}

# HDF5 calls exit where memory runs out: its code, which may be 0, is no answer.
test_a_library_that_exits() {
    need gcc
    cat >"$dir/exits.c" <<'END'
#include <stdlib.h>
long H5Dopen2(long where, const char *name, long how) { (void)where; (void)name; (void)how; exit(STATUS); }
long H5Dwrite(long to, long type, long a, long b, long c, const void *from) { (void)to, (void)type, (void)a, (void)b, (void)c, (void)from; exit(STATUS); }
END
    set -- run -m random:llama,layers=1 --tokens 1,2 -n 1 --batch 1,2 --threads 1 --slot first --neighbours copies --kernels pinned
    "$driftscope" "$@" -o "$dir/a.h5" >"$dir/out"
    for status in 0 255; do
        gcc -shared -fPIC -DSTATUS=$status -o "$dir/exits.so" "$dir/exits.c"
        for words in "show $dir/a.h5" "diff $dir/a.h5 $dir/a.h5 --json" "table $dir/a.h5" "$* -o $dir/b.h5 --force"; do
            run env LD_PRELOAD="$dir/exits.so" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$driftscope" $words
            expect 2
            has "$dir/err" "driftscope: a library ended the program before it was done"
            empty "$dir/out"
        done
    done
    run env LD_PRELOAD="$dir/exits.so" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$driftscope" show "$dir/a.h5" --error-exit 125
    expect 125
}

test_empty_environment() {
    run env -i "$driftscope" kernels
    expect 0
    run env -i "$driftscope" help run
    expect 0
    run env -i "$driftscope" nothing
    expect 2
}

test_odd_arguments_are_escaped() {
    odd=$(printf 'a\033[2J\377b\nc')
    ds "$odd"
    expect 2
    has "$dir/err" 'a\x1b[2J\xffb\nc'
    [ "$(wc -l <"$dir/err")" -eq 2 ]
    ds kernels "--$odd"
    expect 2
    has "$dir/err" '\x1b'
    ds kernels "-$(printf '\377')"
    expect 2
    has "$dir/err" "'-\\xff'"
    ds kernels "-$(printf '\303\251')"
    expect 2
    has "$dir/err" "'-$(printf '\303\251')'"
}

test_huge_argument() {
    big=$(head -c 100000 /dev/zero | tr '\0' x)
    ds "$big"
    expect 2
    [ "$(wc -c <"$dir/err")" -lt 400 ]
    ds kernels "--$big=1"
    expect 2
    [ "$(wc -c <"$dir/err")" -lt 400 ]
    ds kernels -o "$dir/$big"
    expect 2
    has "$dir/err" "File name too long"
}

run_tests
