# test_terminal.sh: a real terminal (tmux): resizing, stopping, signals, colours, and that all is as it was afterwards.
. tests/tui/lib.sh

# The terminal's settings and cursor are those from before the program ran: call once before and once after.
settings() {
    rm -f "$dir/settings"
    type_line 'stty -a | sed 1d > settings.new; mv settings.new settings'
    eventually test -s "$dir/settings"
    { cat "$dir/settings" && tm display-message -p -t t 'cursor #{cursor_flag} screen #{alternate_on} keypad #{keypad_flag}'; } >"$dir/$1"
}

# Runs the program on the drifting record, as the job of the shell.
begin() {
    need ps
    record drift
    ln -s "$records/drift.h5" "$dir/drift.h5"
    terminal "$@"
    settings before
    type_line '"$driftscope" tui drift.h5 --view '"${view:-site}"'; echo ended with $?'
    shows 'L01 q_proj'
}
as_before() {
    settings after
    same_files "$dir/before" "$dir/after"
    # The shell's lines are there again, the program's are gone.
    screen_has 'ready> '
    screen_lacks 'L01 q_proj'
}
process() { tm list-panes -t t -F '#{pane_pid}' | xargs -I{} ps -o pid= --ppid {} | tr -d ' '; }

test_quit_restores() {
    begin 80x24
    keys q
    shows 'ended with 0'
    as_before
}

test_signals_restore() {
    begin 80x24
    for signal in TERM HUP INT; do
        kill -s "$signal" "$(process)"
        shows 'ended with 130'
        as_before
        type_line 'clear; "$driftscope" tui drift.h5 --view site; echo ended with $?'
        shows 'L01 q_proj'
    done
    keys Q
    shows 'ended with 0'
}

test_crash_restores() {
    begin 80x24
    for signal in SEGV ABRT; do
        kill -s "$signal" "$(process)"
        shows 'ended with 1'
        as_before
        type_line 'clear; ulimit -c 0; "$driftscope" tui drift.h5 --view site; echo ended with $?'
        shows 'L01 q_proj'
    done
    keys Q
    shows 'ended with 0'
}

test_suspend_and_resume() {
    begin 80x24
    keys C-z
    eventually screen_has 'ready> '
    settings after
    same_files "$dir/before" "$dir/after"
    type_line 'fg'
    shows 'L01 q_proj'
    keys '}'
    shows 'L02 q_proj'
    # From outside, and resized meanwhile.
    pid=$(process)
    kill -s TSTP "$pid"
    shows 'ready> '
    tm resize-window -t t -x 100 -y 30
    type_line 'fg; echo back with $?'
    shows 'L02 q_proj'
    eventually screen_line 29 '^ site '
    # Stopped without notice: the shell finds the terminal as the program left it, where only ^J ends a line.
    kill -s STOP "$pid"
    shows 'topped (signal)'
    keys -l fg
    keys C-j
    eventually screen_lacks 'topped (signal)'
    shows 'L02 q_proj'
    keys q
    shows 'ready> '
    settings after
    same_files "$dir/before" "$dir/after"
}

# Where there is no other screen to go back to, the shell goes on in an empty line.
test_a_terminal_with_one_screen() {
    begin 80x24 TERM=vt100
    keys C-z
    shows 'ready>'
    screen_lacks '? help'
    type_line 'fg; echo then $?'
    shows '? help'
    keys Q
    shows 'then 0'
    screen_lacks '? help'
}

# Stopped and resumed from outside many times, at moments of chance: whichever of the signals came last, `fg` brings it back, and
# what is left afterwards is the terminal as it was. (^U empties the shell's line; the program moves up.)
to_front() { keys C-u && keys -l fg && keys C-j; }
in_front() { to_front && screen_line 23 'max ULP, decimal'; }
quits() { to_front && keys -l Q && ! kill -0 "$pid"; }
test_stop_storm() {
    begin 80x24
    pid=$(process)
    for round in 1 2 3 4 5 6; do
        for signal in TSTP CONT TSTP TSTP CONT CONT WINCH; do kill -s $signal "$pid"; done
        eventually in_front
    done
    eventually quits
    keys C-u
    as_before
}

# What the terminal shows after many sizes is what a script shows at the last one.
test_resize_storm() {
    begin 80x24
    for round in 1 2 3; do
        for size in 20x5 200x60 59x12 60x12 1x1 300x100 61x13 80x24 132x43 10x40 100x4 $((70 + round))x24; do
            tm resize-window -t t -x "${size%x*}" -y "${size#*x}"
        done
    done
    keys '}'
    shows 'L02 q_proj'
    # Columns grow with what was seen: the largest size counts, which a storm may have left out.
    tm resize-window -t t -x 300 -y 100
    eventually screen_line 99 '^ site '
    tm resize-window -t t -x 73 -y 24
    tui C.UTF-8 80x24 "$dir/drift.h5" <<'END'
view site
keys }
size 300x100
size 73x24
save
END
    expect 0
    eventually screen_is "$dir/screen"
    tm resize-window -t t -x 40 -y 24
    shows 'driftscope needs 60x12'
    keys Q
    shows 'ended with 0'
}

# The screen has characters with such an attribute. It need not be drawn to its end when something of it is there.
attributes() { capture -e | LC_ALL=C grep -q "$(printf '\033')\[[0-9;]*$1m"; }

test_colours() {
    begin 80x24
    eventually attributes '3[1-6]'
    keys q
    shows 'ended with 0'
    type_line 'clear; NO_COLOR=1 "$driftscope" tui drift.h5 --view site'
    shows 'L01 q_proj'
    eventually attributes 7
    ! attributes '3[0-7]'
    keys q
}

test_ascii_locale() {
    begin 80x24 LC_ALL=C
    capture >"$dir/screen"
    ! LC_ALL=C grep -q '[^ -~]' "$dir/screen"
    keys q
    shows 'ended with 0'
}

# The description of a Linux console, and of others, has no size: the terminal itself says it.
test_a_description_without_a_size() {
    need tic
    mkdir "$dir/terminfo"
    printf 'sizeless|no size,\n\tlines@, cols@, use=screen,\n' >"$dir/sizeless.ti"
    tic -o "$dir/terminfo" "$dir/sizeless.ti" 2>/dev/null || skip "there is no description of screen"
    begin 90x30 "TERMINFO='$dir/terminfo' TERM=sizeless"
    screen_line 30 "Enter"
    keys q
    shows 'ended with 0'
}

test_unknown_terminals() {
    begin 80x24
    keys q
    shows 'ended with 0'
    type_line 'TERM=dumb "$driftscope" tui drift.h5; echo "dumb $?"'
    shows 'dumb 2'
    # Curses keeps what it allocated for a terminal that it does not know; the leak is not ours.
    type_line 'ASAN_OPTIONS=detect_leaks=0 TERM=no-such-terminal "$driftscope" tui drift.h5; echo "unknown $?"'
    shows 'unknown 2'
    type_line 'env -u TERM "$driftscope" tui drift.h5; echo "unset $?"'
    shows 'unset 2'
    settings after
    same_files "$dir/before" "$dir/after"
}

# Keys that arrive in one piece are all obeyed, and characters of more than a byte are.
test_fast_typing() {
    begin 80x24
    keys -l '}}{]]:goto 0,attn_o'
    keys Tab
    keys Enter
    shows 'L00 attn_out'
    keys -l '/日é'
    shows '/日é'
    keys Escape
    eventually screen_lacks '/日é'
    keys -l 'q'
    shows 'ended with 0'
}

# Esc is a key of its own at once, and arrows are not torn apart.
test_escape() {
    begin 80x24
    keys '?'
    shows 'Moving'
    keys Down Down
    shows '>^D'
    keys Escape
    eventually screen_lacks 'Moving'
    shows 'L01 q_proj'
    keys Q
    shows 'ended with 0'
}

# From the verdict to the element, as somebody would who has the real model: the vendor's kernels against the pinned ones.
test_walk_on_the_real_model() {
    need tmux
    run "$driftscope" run -p 'The sky is' -n 1 --repeat 1 --batch 1 --threads 1 --slot first --neighbours copies --chunk 0 \
        --mode prefill --kernels vendor,pinned -q -o "$dir/real.h5"
    [ "$code" -ne 2 ] || skip "no model here: $(head -n 1 "$dir/err")"
    expect 1
    terminal 120x40
    settings before
    type_line '"$driftscope" tui real.h5; echo ended with $?'
    shows ' overview '
    shows 'first drift'
    keys 2
    shows ' layers '
    keys Escape
    shows ' overview '
    keys f
    shows ' site '
    shows 'origin'
    keys Enter
    shows ' tensor '
    shows 'differ'
    keys e
    shows '!='
    keys Escape
    shows ' site '
    keys Escape
    shows ' overview '
    keys Q
    shows 'ended with 0'
    settings after
    same_files "$dir/before" "$dir/after"
}

# Where stdin is no terminal the keys come from the terminal all the same.
test_stdin_elsewhere() {
    begin 80x24
    keys q
    shows 'ended with 0'
    type_line 'clear; "$driftscope" tui drift.h5 --view site </dev/null; echo then $?'
    shows 'L01 q_proj'
    keys '}'
    shows 'L02 q_proj'
    keys q
    shows 'then 0'
}

is_gone() { ! kill -0 "$1"; }

# The terminal goes away: so does the program.
test_hang_up() {
    begin 80x24
    pid=$(process)
    tm kill-server
    eventually is_gone "$pid"
}

run_tests
