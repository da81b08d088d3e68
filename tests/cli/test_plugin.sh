# test_plugin.sh: --plugin: the example, built as its README says; plugins with one fault each, at load and in a run; what a record
# keeps of them.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
short="--batch 1,4 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --repeat 2 --tokens 1,2,3 -n 2"

# A sanitized program would turn the signals of these plugins into reports of its own.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigfpe=0
export ASAN_OPTIONS

# build NAME FLAG...: $dir/NAME.so from tests/plugins/fault.c, against the public header alone.
build() {
    command -v gcc >/dev/null || skip "no gcc here"
    name=$1
    shift
    gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -fPIC -shared -Ikernels "$@" -o "$dir/$name.so" tests/plugins/fault.c
}

# refused TEXT: the plugin given last is an error that says so; nothing is printed.
refused() {
    expect 2
    empty "$dir/out"
    has "$dir/err" "driftscope: plugin $1"
}

test_example_is_used_in_a_run() {
    need gcc
    make -s -C examples/plugin CC=gcc OUT="$dir" CFLAGS="-O2 -Werror -pedantic"
    ds kernels matmul --plugin "$dir/pairwise.so"
    expect 0
    has "$dir/out" "matmul/pairwise"
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/pairwise.so" --plugin "$dir/axpy.so" --kernels reference,reference+matmul=pairwise $short \
        -q -o "$dir/a.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 q_proj, matmul/pairwise: origin"
    has "$dir/out" "rounding-order"
    # Its claims hold in a sweep of its own.
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/pairwise.so" --kernels vendor+matmul=pairwise $short -q --no-record
    expect 0
    grep -Eq '^matmul/pairwise +same +same' "$dir/out"
}

test_before_and_after_the_verb() {
    build mine
    ds --plugin "$dir/mine.so" kernels add
    expect 0
    has "$dir/out" "add/mine"
    ds kernels add --plugin="$dir/mine.so"
    expect 0
    has "$dir/out" "add/mine"
    ds kernels add
    hasnt "$dir/out" "add/mine"
    # A name without a slash is a file of this folder, not one of the library path.
    cd "$dir"
    ds kernels add --plugin mine.so
    expect 0
    has "$dir/out" "add/mine"
}

test_what_is_no_plugin() {
    need gcc
    ds kernels --plugin "$dir/absent.so"
    refused "$dir/absent.so: cannot be opened: No such file"
    ds kernels --plugin "$dir"
    refused "$dir: not a file"
    mkfifo "$dir/pipe"
    ds kernels --plugin "$dir/pipe"
    refused "$dir/pipe: not a file"
    : >"$dir/empty.so"
    ds kernels --plugin "$dir/empty.so"
    refused "$dir/empty.so: not a shared object"
    ds kernels --plugin README.md
    refused "README.md: not a shared object"
    echo 'int main(void) { return 0; }' >"$dir/main.c"
    gcc -c -fPIC -o "$dir/main.o" "$dir/main.c"
    ds kernels --plugin "$dir/main.o"
    refused "$dir/main.o: an ELF file, but not a shared object"
    gcc -o "$dir/main" "$dir/main.c"
    ds kernels --plugin "$dir/main"
    refused "$dir/main: cannot be loaded"
    head -c 2000 "$dir/main" >"$dir/cut.so"
    ds kernels --plugin "$dir/cut.so"
    refused "$dir/cut.so: " # how it ends is the loader's choice
    if [ "$(id -u)" -ne 0 ]; then
        cp "$dir/main" "$dir/secret.so"
        chmod 0 "$dir/secret.so"
        ds kernels --plugin "$dir/secret.so"
        refused "$dir/secret.so: cannot be opened: Permission denied"
    fi
}

test_faults_found_when_loading() {
    while read -r flags; do
        read -r text
        # shellcheck disable=SC2086
        build bad $flags
        ds kernels --plugin "$dir/bad.so"
        refused "$dir/bad.so: $text"
    done <<'END'
-DFAULT_NO_SYMBOL
has no function ds_plugin_kernels
-DFAULT_OTHER_ABI
has no kernels for abi 5, which this driftscope has
-DABI=1
kernel 0 is of abi 1, this driftscope has abi 5
-DFAULT_EMPTY
brings no kernel
-DFAULT_TWICE
has two variants of the name add/mine
-DNAME="pinned"
add/pinned is a variant of driftscope already
-DNAME="No"
kernel 'No': name is not one
-DFEATURES=1073741824
kernel add/mine: features 0x40000000 has bits that mean nothing
-DFEATURES=DS_FEATURE_LSE
kernel add/mine: features 0x8 belong to another op
-DFAULT_UNRESOLVED
cannot be loaded
-DFAULT_CRASH_ON_LOAD
ended by signal 11 (Segmentation fault) while it was being loaded
-DFAULT_CRASH_IN_FUNCTION
ended by signal 6 (Aborted) while it was being loaded
-DFAULT_CRASH_WHEN_ASKED
ended by signal 7 (Bus error) while it was being loaded
-DFAULT_EXIT_ON_LOAD
ended the process with status 0 while it was being loaded
-DFAULT_SIGNAL_ON_LOAD
ended by signal 15 (Terminated) while it was being loaded
-DFAULT_LEAVE_A_PROCESS_ON_LOAD
ended by signal 11 (Segmentation fault) while it was being loaded
END
}

test_hang_when_loading() {
    build bad -DFAULT_HANG_ON_LOAD
    ds kernels --plugin "$dir/bad.so" --plugin-timeout 1
    refused "$dir/bad.so: was not loaded within 1 s"
    has "$dir/err" "--plugin-timeout gives it longer"
}

test_names_that_clash() {
    build one
    build two
    ds kernels --plugin "$dir/one.so" --plugin "$dir/two.so"
    refused "$dir/two.so: add/mine is a variant of plugin $dir/one.so already"
    ds kernels --plugin "$dir/one.so" --plugin "$dir/one.so"
    refused "$dir/one.so: add/mine is a variant of plugin $dir/one.so already"
}

# in_a_run NAME FLAG...: a sweep whose last arm uses the plugin's add.
in_a_run() {
    name=$1
    shift
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/$name.so" --kernels pinned,pinned+add=mine --batch 1 --slot first --neighbours copies \
        --threads 1 --chunk 0 --mode prefill --repeat 2 --tokens 1,2,3 -n 2 -q -o "$dir/$name.h5" "$@"
}

test_crash_in_a_launch() {
    build bad -DFAULT_CRASH_IN_LAUNCH
    in_a_run bad
    expect 2
    has "$dir/err" "1 arm could not be run; first: arm 1, repeat 0: worker 1 died by signal 11 (Segmentation fault) in layer 0 \
resid_attn: add/mine (plugin bad.so), 3 rows"
    # What was recorded before stays good.
    ds show "$dir/bad.h5"
    expect 0
    has "$dir/out" "repeat        no difference over"
    # It is no golden one: nobody knows what the lost arm gives.
    ds lock "$dir/bad.h5" -o "$dir/bad.lock"
    expect 2
    has "$dir/err" "arm 1 has no complete trial: a lock holds every arm"
    [ ! -e "$dir/bad.lock" ]
    ds risk "$dir/bad.h5"
    has "$dir/err" "bad.h5: 1 of 2 arms have no complete trial and are left out"
    # In the base arm nothing is left to compare.
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/bad.so" --kernels pinned+add=mine $short -q -o "$dir/base.h5"
    expect 2
    has "$dir/err" "base arm: worker 1 died by signal 11 (Segmentation fault) in layer 0 resid_attn: add/mine (plugin bad.so)"
    [ ! -e "$dir/base.h5" ]
}

test_end_of_the_process_in_a_launch() {
    build bad -DFAULT_EXIT_IN_LAUNCH -DFROM_ROWS=2
    in_a_run bad
    expect 2
    has "$dir/err" "worker 1 ended unexpectedly with status 3 in layer 0 resid_attn: add/mine (plugin bad.so), 3 rows"
}

test_hang_in_a_launch() {
    build bad -DFAULT_HANG_IN_LAUNCH
    in_a_run bad --trial-timeout 5
    expect 2
    has "$dir/err" "worker 1 was ended after 5 s in layer 0 resid_attn: add/mine (plugin bad.so), 3 rows"
    ds show "$dir/bad.h5"
    expect 0
}

test_hang_can_be_interrupted() {
    build bad -DFAULT_HANG_IN_LAUNCH
    # shellcheck disable=SC2086
    background run -m $small --plugin "$dir/bad.so" --kernels pinned+add=mine $short -o "$dir/a.h5"
    there "$dir/a.h5"
    kill -TERM $pid
    ended
    expect 130
}

test_fault_in_prepare() {
    build bad -DFAULT_CRASH_IN_PREPARE
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/bad.so" --kernels pinned+matmul=mine $short -q -o "$dir/a.h5"
    expect 2
    has "$dir/err" "base arm: worker 1 died by signal 8 (Floating point exception) while matmul/mine (plugin bad.so) was being prepared"
}

test_fault_in_describe() {
    build bad -DFAULT_CRASH_IN_DESCRIBE
    in_a_run bad
    expect 2
    has "$dir/err" "worker 1 died by signal 11 (Segmentation fault) in layer 0 resid_attn: add/mine (plugin bad.so), 3 rows"
}

test_worker_that_closes_its_files() {
    build bad -DFAULT_CLOSE_IN_LAUNCH -DCLOSE_FROM=0
    in_a_run bad
    expect 2
    has "$dir/err" "arm 1, repeat 0: worker 1 lost its connection, or closed it"
    ds show "$dir/bad.h5"
    expect 0
}

# What interrupts a group of processes is for the parent to act upon: a worker that ended first would be told as one that died.
test_worker_leaves_interruptions_to_its_parent() {
    build bad -DFAULT_INTERRUPT_IN_LAUNCH
    in_a_run bad
    expect 0
    empty "$dir/err"
}

# The program is told to stop while its worker is at work, and says what came of it.
test_interrupted_serving_runs_say_so() {
    build bad -DFAULT_INTERRUPT_PARENT_IN_LAUNCH
    ds storm -m $small --tokens 1,2,3 --requests 3 -n 2 --compare pinned --threads 1 -q -o "$dir/a.h5"
    expect 0
    ds replay "$dir/a.h5" -m $small --plugin "$dir/bad.so" --kernels pinned+add=mine --force
    expect 130
    empty "$dir/out"
    has "$dir/err" "interrupted: nothing was compared"
    ds storm -m $small --tokens 1,2,3 --requests 3 -n 2 --plugin "$dir/bad.so" --compare pinned+add=mine,pinned --threads 1 -o "$dir/b.h5"
    expect 130
    has "$dir/err" "interrupted: 0 of 2 kernel sets are saved in $dir/b.h5"
    ds risk "$dir/b.h5"
    expect 2
    has "$dir/err" "the record has no complete trial"
    ds onpolicy -m $small --tokens 1,2,3 -n 2 --plugin "$dir/bad.so" --compare pinned,pinned+add=mine --threads 1 -o "$dir/c.h5"
    expect 130
    has "$dir/err" "interrupted: 1 kernel set is complete in $dir/c.h5"
}

# A lock that nobody finished is not written, and a sweep that was stopped says nothing of a lock.
test_interrupted_locks_say_so() {
    build mine
    build bad -DFAULT_INTERRUPT_PARENT_IN_LAUNCH
    set -- -m $small --tokens 1,2,3 -n 2 --threads 1 --batch 1,2 --kernels pinned+add=mine
    ds lock "$@" --plugin "$dir/bad.so" -o "$dir/none.lock"
    expect 130
    empty "$dir/out"
    has "$dir/err" "interrupted: $dir/none.lock was not written"
    [ ! -e "$dir/none.lock" ]
    ds lock "$@" --plugin "$dir/mine.so" -o "$dir/a.lock"
    expect 0
    ds verify "$dir/a.lock" -m $small --plugin "$dir/mine.so"
    expect 0
    cp "$dir/a.lock" "$dir/before.lock"
    ds verify "$dir/a.lock" -m $small --plugin "$dir/bad.so"
    expect 130
    empty "$dir/out"
    has "$dir/err" "interrupted: nothing was compared"
    ds lock --update -m $small --plugin "$dir/bad.so" -o "$dir/a.lock"
    expect 130
    same_files "$dir/before.lock" "$dir/a.lock"
}

# What a dead worker started may live on, with the worker's end of the socket.
test_worker_that_leaves_a_process_behind() {
    build bad -DFAULT_LEAVE_A_PROCESS_IN_LAUNCH
    in_a_run bad
    expect 2
    has "$dir/err" "worker 1 died by signal 11 (Segmentation fault) in layer 0 resid_attn: add/mine (plugin bad.so), 3 rows"
}

test_prepare_that_changes_rounding() {
    build bad -DFAULT_ROUND_IN_PREPARE
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/bad.so" --kernels pinned+matmul=mine $short -q --no-record
    expect 2
    has "$dir/err" "matmul/mine cannot prepare blk.0.attn_q.weight: prepare changed the floating-point control word"
    ds order matmul/mine --plugin "$dir/bad.so" --shape n=16,k=16
    expect 2
    has "$dir/err" "prepare changed the floating-point control word"
}

# Verbs that launch kernels themselves; run and check have workers of their own.
test_crash_in_any_verb_has_a_text() {
    build bad -DFAULT_CRASH_IN_PREPARE
    for verb in "order matmul/mine" "bench matmul/mine"; do
        # shellcheck disable=SC2086
        ds $verb --plugin "$dir/bad.so" --shape n=16,k=16
        expect 2
        empty "$dir/out"
        has "$dir/err" "driftscope: ended by signal 8 (Floating point exception) while matmul/mine (plugin bad.so) prepared weights"
        has "$dir/err" "hint: driftscope check OP/VARIANT --plugin FILE.so names the call"
    done
    ds check matmul/mine --plugin "$dir/bad.so" --shape n=16,k=16
    expect 1
    has "$dir/out" "crashes (Floating point exception)"
    # What the child says and how it ends is the program's.
    build mine
    ds order matmul/mine --plugin "$dir/mine.so" --shape n=16,k=16
    expect 0
    has "$dir/out" "100 % of the outputs bit for bit"
}

# An end of the process is no result, whatever its status; nor is one that nobody could read.
test_end_of_the_process_in_any_verb() {
    build bad -DFAULT_END_IN_LAUNCH
    ds bench add/mine --rows 2 --plugin "$dir/bad.so" --shape width=16
    expect 2
    empty "$dir/out"
    has "$dir/err" "the process was ended with status 0 while add/mine (plugin bad.so) was launched"
    build bad -DFAULT_CLOSE_IN_LAUNCH -DCLOSE_FROM=3
    ds bench add/mine --rows 2 --plugin "$dir/bad.so" --shape width=16
    expect 2
    empty "$dir/out"
    has "$dir/err" "cannot write to stdout: Bad file descriptor"
    build bad -DFAULT_CLOSE_IN_LAUNCH -DCLOSE_FROM=0
    ds bench add/mine --rows 2 --plugin "$dir/bad.so" --shape width=16
    expect 2
    empty "$dir/out"
    has "$dir/err" "stderr of the process was closed"
}

test_hang_in_any_verb() {
    build bad -DFAULT_HANG_IN_LAUNCH
    ds bench add/mine --rows 2 --plugin "$dir/bad.so" --shape width=16 --plugin-timeout 1
    expect 2
    empty "$dir/out"
    has "$dir/err" "ended after 1 s while add/mine (plugin bad.so) was launched"
    has "$dir/err" "hint: the call does not return; --plugin-timeout gives it longer"
}

# A program that ignores SIGCHLD starts its children so, too.
test_ends_are_seen_where_sigchld_is_ignored() {
    need python3
    build bad -DFAULT_CRASH_IN_PREPARE
    run python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$driftscope" bench matmul/mine --plugin "$dir/bad.so" --shape n=16,k=16
    expect 2
    has "$dir/err" "ended by signal 8"
}

# What a plugin does to the process when it is loaded, and what it wants done at the end.
test_process_is_put_back_after_loading() {
    build bad -DFAULT_SET_UP_PROCESS_ON_LOAD
    # A relative name: its folder, too, is the one that it was.
    cd "$dir"
    code=0
    # shellcheck disable=SC2086
    "$driftscope" run -m $small --plugin ./bad.so --kernels pinned+add=mine --repeat 200 -o a.h5 >out 2>err </dev/null &
    pid=$!
    while [ ! -e a.h5 ] && kill -0 $pid 2>/dev/null; do :; done
    kill -TERM $pid
    wait $pid || code=$?
    expect 130
    [ "$(stat -c %a a.h5)" != 0 ]
    cd "$root"
    build end -DFAULT_AT_THE_END
    ds kernels add --plugin "$dir/end.so"
    expect 0
    has "$dir/out" "add/mine"
}

test_flush_to_zero_is_put_back_and_told() {
    build fast -DFAULT_FLUSH_ON_LOAD
    in_a_run fast
    expect 0
    empty "$dir/err" # -q
    ds kernels add --plugin "$dir/fast.so"
    expect 0
    has "$dir/err" "plugin $dir/fast.so: loading it changed this thread's floating-point control word from 0x1f80 to 0x9fc0: \
subnormals are flushed to zero; it was put back"
    has "$dir/out" "loading it set mxcsr 0x9fc0"
    # The record says it of the plugin, and that the run itself kept subnormals.
    ds diff "$dir/fast.h5" "$dir/fast.h5" --json
    build mine
    in_a_run mine
    ds diff "$dir/fast.h5" "$dir/mine.h5"
    expect 0
    has "$dir/out" "loading it set mxcsr 0x9fc0"
    hasnt "$dir/out" "flush_to_zero"
}

# It goes to stderr: stdout carries results only.
test_what_a_plugin_prints_is_there_once() {
    build loud -DFAULT_PRINT_ON_LOAD
    ds kernels add --plugin "$dir/loud.so"
    expect 0
    [ "$(grep -c printed "$dir/err")" -eq 1 ]
    hasnt "$dir/out" printed
    build loud -DFAULT_PRINT_IN_LAUNCH
    in_a_run loud --json
    expect 0
    has "$dir/err" printed
    hasnt "$dir/out" printed
    ds bench add/mine --plugin "$dir/loud.so" --shape width=4 --rows 1 --seconds 0
    has "$dir/err" printed
    hasnt "$dir/out" printed
    # A name that means stdout still does.
    ds order matmul/mine --plugin "$dir/loud.so" --shape n=16,k=16 --rows 1 --dot /dev/stdout -o "$dir/order.txt"
    expect 0
    has "$dir/out" "digraph"
}

test_resume_demands_the_same_plugin() {
    build mine
    build other -O2 -DFROM_ROWS=9
    in_a_run mine
    expect 0
    # Nothing is missing, but the check comes first.
    ds run -m $small --resume "$dir/mine.h5"
    expect 2
    has "$dir/err" "the record was made in another environment: plugin_1 was mine.so "
    has "$dir/err" "is unset"
    has "$dir/err" "hint: give the files that it was made with, in the same order: --plugin FILE.so"
    ds run -m $small --resume "$dir/mine.h5" --plugin "$dir/other.so"
    expect 2
    has "$dir/err" "plugin_1 was mine.so "
    has "$dir/err" "is other.so "
    ds run -m $small --resume "$dir/mine.h5" --plugin "$dir/mine.so"
    expect 0
    # A command that is suggested has the plugins of this one.
    ds show "$dir/mine.h5" --plugin "$dir/mine.so"
    expect 0
}

# Two builds of one kernel: the one that is loaded is launched again, and nothing is said of the other by what this one gives.
test_explain_of_two_builds() {
    need gcc
    for terms in 8 16; do
        mkdir "$dir/$terms"
        sed "s/n > 8/n > $terms/" examples/plugin/pairwise.c >"$dir/$terms/mine.c"
        gcc -std=c11 -O2 -ffp-contract=off -fPIC -shared -Ikernels -o "$dir/$terms/mine.so" "$dir/$terms/mine.c"
        # shellcheck disable=SC2086
        ds run -m $small $short --plugin "$dir/$terms/mine.so" --kernels pinned+matmul=pairwise -o "$dir/$terms.h5" -q
        expect 0
    done
    ds explain "$dir/8.h5" "$dir/16.h5" -m $small --plugin "$dir/16/mine.so"
    has "$dir/out" "not replayed: its plugin had other bytes than mine.so: give that one with --plugin"
    [ "$(grep -c "not replayed" "$dir/out")" -eq 1 ]
    has "$dir/out" "order of A    not measured"
    has "$dir/out" "order of B    4 blocks of 16 k, each one chain in ascending order"
    hasnt "$dir/out" "launched again"
    ds explain "$dir/8.h5" "$dir/16.h5" -m $small --plugin "$dir/8/mine.so"
    has "$dir/out" "order of A    8 blocks of 8 k, each one chain in ascending order"
    has "$dir/out" "order of B    not measured"
}

test_interrupted_run_suggests_its_plugins() {
    build mine
    background run -m $small --plugin "$dir/mine.so" --kernels pinned+add=mine --repeat 20000 -o "$dir/a.h5"
    there "$dir/a.h5"
    kill -TERM $pid
    ended
    expect 130
    has "$dir/err" "run -m $small --plugin $dir/mine.so --resume $dir/a.h5"
}

test_workers_of_every_kind_have_the_plugin() {
    build mine
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/mine.so" --kernels pinned+matmul=mine+add=mine --process 1,2 --dtype f32,bf16 $short -q --no-record
    expect 0
    grep -Eq '^matmul/mine +same' "$dir/out"
}

test_variant_that_cannot_run_here() {
    build absent -DFAULT_CANNOT_RUN
    ds kernels add --plugin "$dir/absent.so"
    expect 0
    has "$dir/out" "no: needs a device that is not here"
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/absent.so" --kernels pinned+add=mine $short -q --no-record
    expect 2
    has "$dir/err" "add/mine cannot run here: needs a device that is not here"
}

# A reason that fills its place to the last byte is cut, not read beyond.
test_reason_without_an_end() {
    build long -DFAULT_REASON_WITHOUT_END
    ds kernels add --plugin "$dir/long.so"
    expect 0
    [ "$(grep -o 'no: x*' "$dir/out" | wc -c)" -eq 260 ]
    ds check add/mine --plugin "$dir/long.so" --shape width=3
    expect 2
    grep -Eq 'not run +x{200,255}$' "$dir/out"
    ds bench add/mine --plugin "$dir/long.so" --shape width=3 --rows 1
    expect 0
    grep -Eq 'add/mine is left out: x{255}$' "$dir/err"
}

test_kernels_lists_a_plugin_as_json() {
    need python3
    build mine -DFEATURES=DS_FEATURE_UNROUNDED
    ds kernels add --plugin "$dir/mine.so" --json
    expect 0
    python3 - "$dir/out" "$dir/mine.so" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
(p,) = d["plugins"]
assert p["file"] == "mine.so" and p["variants"] == 2 and len(p["digest"]) == 16 and p["loading_set_mxcsr"] is None, p
mine = [k for k in d["kernels"] if k["plugin"]]
assert [(k["op"], k["variant"], k["plugin"], k["features"], k["sets"]) for k in mine] == [
    ("add", "mine", "mine.so", ["unrounded"], [])], mine
by_set = {s for k in d["kernels"] for s in k["sets"]}
assert {"vendor", "pinned", "reference"} <= by_set, by_set
END
    ds kernels add --plugin "$dir/mine.so"
    has "$dir/out" "    a + b; can: unrounded; from mine.so"
    # The digest is that of the file, as anybody can take it.
    command -v xxhsum >/dev/null || return 0
    has "$dir/out" "$(xxhsum -H3 "$dir/mine.so" | sed 's/^XXH3_//; s/.* = //; s/ .*//')"
}

test_reasons_of_a_plugin_are_escaped() {
    build bad -DFAULT_REFUSE -DNAME='"mine"'
    in_a_run bad
    expect 2
    has "$dir/err" "layer 0 resid_attn: add/mine (plugin bad.so): no \\x1b[31m today"
}

test_control_word_changed_by_a_launch() {
    build bad -DFAULT_FLUSH_IN_LAUNCH
    in_a_run bad
    expect 2
    has "$dir/err" "layer 0 resid_attn: add/mine (plugin bad.so): the kernel changed the floating-point control word"
}

# The header of a plugin compiles alone, pedantically, in C and in C++.
test_header_alone() {
    need gcc
    echo '#include "driftscope_kernel.h"' >"$dir/use.c"
    gcc -std=c11 -Wall -Wextra -Wpedantic -pedantic-errors -Werror -Ikernels -c -o "$dir/use.o" "$dir/use.c"
    need g++
    g++ -std=c++17 -Wall -Wextra -Wpedantic -pedantic-errors -Werror -Ikernels -x c++ -c -o "$dir/use.o" "$dir/use.c"
    # A plugin in C++ exports the name that is looked for.
    cat >"$dir/plugin.cc" <<'END'
#include "driftscope_kernel.h"
static int launch(const void *, const ds_exec *, char *, size_t) { return 0; }
const ds_kernel *const *ds_plugin_kernels(uint32_t)
{
    static ds_kernel k = {};
    static const ds_kernel *const all[] = {&k, nullptr};
    k.abi = DS_KERNEL_ABI;
    k.op = DS_OP_ADD;
    k.name = "cxx";
    k.summary = "does nothing";
    k.launch = launch;
    return all;
}
END
    g++ -std=c++17 -Wall -Werror -Ikernels -shared -fPIC -o "$dir/cxx.so" "$dir/plugin.cc"
    ds kernels add --plugin "$dir/cxx.so"
    expect 0
    has "$dir/out" "add/cxx"
}

run_tests
