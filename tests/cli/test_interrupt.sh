# test_interrupt.sh: verbs that wait for somebody to write into a FIFO, and are interrupted: exit code 130, nothing half written.
. tests/cli/lib.sh

model=random:llama,layers=1,hidden=32,ffn=48,vocab=64,seed=2
storm="storm -m $model --threads 1 --tokens 3,4,5"

# The process has its handlers, and waits.
is_waiting() {
    kill -0 "$pid" || return 0
    caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status")
    grep -q '^State:[[:space:]]*S' "/proc/$pid/status" && [ $((0x$caught >> 14 & 1)) -eq 1 ] # SIGTERM
}

# has_opened: the FIFO is among its files.
has_opened() {
    kill -0 "$pid" || return 0
    for f in "/proc/$pid/fd/"*; do
        [ "$(readlink "$f")" != "$dir/fifo" ] || return 0
    done
    return 1
}

# stopped ARGUMENT...: waits at $dir/fifo, before anybody has opened it and after, and ends both times as interrupted.
stopped() {
    background "$@"
    eventually is_waiting
    kill -TERM "$pid" || {
        say "it did not wait: $*"
        shown >&2
        return 1
    }
    ended
    expect 130
    empty "$dir/out"
    [ "$(grep -c 'interrupted' "$dir/err")" -eq 1 ]
    background "$@"
    exec 3<>"$dir/fifo" # from both ends: opening it waits for nobody
    eventually has_opened
    printf '{' >&3
    eventually is_waiting
    kill -TERM "$pid"
    ended
    exec 3>&-
    expect 130
    empty "$dir/out"
    set -- "$dir"/*.h5* "$dir"/*.html* "$dir"/*.lock*
    for left; do
        [ ! -e "$left" ] || [ "$left" = "$dir/kept.h5" ]
    done
}

test_interrupted_at_a_fifo() {
    [ -r /proc/self/status ] || skip "no /proc here"
    need mkfifo
    mkfifo "$dir/fifo"
    ds $storm --requests 2 -n 1 --compare pinned -q -o "$dir/kept.h5"
    expect 0
    stopped $storm --schedule "$dir/fifo" -o "$dir/a.h5"
    stopped storm -m $model --requests-from "$dir/fifo" -o "$dir/a.h5"
    stopped storm -m $model --inputs "$dir/fifo" -o "$dir/a.h5"
    stopped run -m $model -f "$dir/fifo" -o "$dir/a.h5"
    stopped run -m $model --tokens 3,4 --expect "$dir/fifo" -o "$dir/a.h5"
    stopped verify "$dir/fifo" -m $model
    stopped lock --update -m $model -o "$dir/fifo"
    stopped fingerprint "$dir/fifo" "$dir/fifo"
    stopped doctor -f "$dir/fifo"
    stopped tui "$dir/kept.h5" --script "$dir/fifo"
}

run_tests
