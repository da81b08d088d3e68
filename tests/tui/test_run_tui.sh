# test_run_tui.sh: `driftscope run --tui` in a real terminal (tmux): the sweep in a child, its record on the screen, what it prints
# afterwards, its exit code; ended, left running, resumed. Without a terminal it is an ordinary run.
. tests/tui/lib.sh

tiny=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=128
# It does not end by itself while a test looks, however long that takes.
long="-m random:llama,layers=4,hidden=256,heads=4,kv_heads=2,ffn=512,vocab=512 --batch 1,2,4,8 --repeat 20000 -n 8"

# in_terminal ARGUMENT...: starts driftscope in a terminal of 100 columns; its exit code comes to $dir/code.
in_terminal() {
    {
        echo "trap : INT"
        echo "cd '$dir'; echo \$\$ >shell"
        printf "'%s' " "$driftscope" "$@"
        echo
        echo "echo \$? >code.new; mv code.new code; sleep 10000"
    } >"$dir/go.sh"
    rm -f "$dir/code"
    new_terminal 100x30 "TERM=screen sh '$dir/go.sh'"
}

shown() { echo "    the terminal shows:"; capture -S -200; }
until_shown() { until_matched "$(printf '%s' "$1" | sed 's/[][\\.*^$]/\\&/g')"; }
until_matched() { eventually past_has "$1"; }
# A sweep that has ended before the screen comes up was never followed, and nothing is said of its writer.
has_seen_the_end() {
    past_has "the writer has ended" || { past_has "6 arms, 18 trials" && ! past_has "following"; }
}
until_ended() {
    eventually test -s "$dir/code"
    code=$(cat "$dir/code")
}
ended_with() {
    until_ended
    [ "$code" -eq "$1" ] && return 0
    say "exit code $code, want $1; the screen is:"
    shown >&2
    return 1
}

test_the_sweep_ends_by_itself() {
    # shellcheck disable=SC2086
    in_terminal run -m $tiny --kernels pinned --batch 1,4 --threads 1 -o a.h5 --tui
    eventually has_seen_the_end
    keys q
    ended_with 0
    until_shown "same: no difference over"
    past_has "the sweep goes on" && return 1
    ds show "$dir/a.h5"
    expect 0
}

# Where a growing record cannot be followed it is written elsewhere and moved at the end: the screen goes with it.
test_the_record_moves_at_the_end() {
    near=$driftscope driftscope=$tools/far_away
    # shellcheck disable=SC2086
    in_terminal run -m $tiny --kernels pinned --batch 1,4 --threads 1 -o moved.h5 --tui
    driftscope=$near
    eventually has_seen_the_end
    screen_line 1 "moved.h5 "
    screen_lacks "deleted"
    keys q
    ended_with 0
    ds show "$dir/moved.h5"
    expect 0
}

test_ended_from_the_screen_and_resumed() {
    # shellcheck disable=SC2086
    in_terminal run $long -o a.h5 --tui
    until_matched "following, [1-9]"
    keys Q
    until_shown "end the sweep?"
    keys x # stays
    until_matched "following, [1-9]"
    keys Q
    until_shown "end the sweep?"
    keys y
    ended_with 130
    until_shown "are saved; go on with"
    ds show "$dir/a.h5"
    [ "$code" -le 1 ]
    end_terminal
    in_terminal run -m random:llama,layers=4,hidden=256,heads=4,kv_heads=2,ffn=512,vocab=512 --resume a.h5 --tui
    until_matched "following, [1-9]"
    keys Q
    until_shown "end the sweep?"
    keys n
    until_shown "the sweep goes on; Ctrl-C ends it"
    keys C-c
    ended_with 130
}

test_an_error_before_the_record() {
    in_terminal run -m no-such-model --tui
    ended_with 2
    until_shown "no-such-model"
}

test_no_record_to_show() {
    ds run -m $tiny --tui --no-record
    expect 2
    has "$dir/err" "--no-record"
}

# Without a terminal: the run as always, and a note.
test_without_a_terminal() {
    ds run -m $tiny --kernels pinned --batch 1,4 --threads 1 -o "$dir/a.h5" --tui
    expect 0
    has "$dir/err" "--tui needs a terminal"
    has "$dir/out" "same: no difference over"
    [ -s "$dir/a.h5" ]
}

# A signal to the program alone reaches the sweep: what is finished is saved.
test_a_signal_to_the_program() {
    need pgrep
    # shellcheck disable=SC2086
    in_terminal run $long -o a.h5 --tui
    until_matched "following, [1-9]"
    kill -TERM "$(pgrep -P "$(cat "$dir/shell")")"
    until_ended
    [ "$code" -ge 128 ]
    until_shown "are saved; go on with"
    ds show "$dir/a.h5"
    [ "$code" -le 1 ]
}

# What takes the sweep away at once (no memory left, say) leaves what is finished, and how to go on is said.
test_the_sweep_is_killed() {
    need pgrep
    # shellcheck disable=SC2086
    in_terminal run $long -o a.h5 --tui
    until_matched "following, [1-9]"
    kill -KILL "$(pgrep -P "$(pgrep -P "$(cat "$dir/shell")")")"
    until_shown "the writer has ended"
    keys q
    ended_with 2
    until_shown "the sweep was ended by signal 9 (Killed)"
    until_matched 'hint: [1-9][0-9]* of [0-9]* trials are saved; go on with: .* run'
    ds show "$dir/a.h5"
    [ "$code" -le 1 ]
}

run_tests
