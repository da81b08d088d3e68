# lib.sh: what every script in tests/tui includes: `. tests/tui/lib.sh`; tests/cli/lib.sh with records that are the same on every
# machine, golden screens of scripts, and a terminal in tmux.
. tests/cli/lib.sh

tools=${TUI_TOOLS:-$(dirname "$driftscope")/tests/tools}
golden=$root/tests/tui/golden
records=$(mktemp -d "${TMPDIR:-/tmp}/driftscope-test.XXXXXX") || exit 1
trap 'rm -rf "$records"' EXIT

# record NAME...: makes sure that $records/NAME.h5 is there.
record() {
    for wanted; do
        [ -f "$records/$wanted.h5" ] || "$tools/make_tui_records" "$records" "$wanted"
    done
}

# tui LOCALE SIZE RECORD... with a script on stdin: the screen that it saves last is $dir/screen ("save" stands for that).
tui() {
    locale=$1 size=$2
    shift 2
    sed "s|^save\$|save-display $dir/screen|; s|^save attributes\$|save-display $dir/screen attributes|" >"$dir/script"
    # As it would be with an empty environment: TERM is not needed.
    run env -i PATH="$PATH" LC_ALL="$locale" "$driftscope" tui --script "$dir/script" --size "$size" "$@"
}

# same_screen NAME: $dir/screen is tests/tui/golden/NAME.txt; DS_UPDATE_GOLDEN=1 writes it (read the difference first).
same_screen() {
    [ "$code" -eq 0 ] || expect 0
    if [ -n "${DS_UPDATE_GOLDEN:-}" ]; then
        mkdir -p "$golden"
        cp "$dir/screen" "$golden/$1.txt"
        return 0
    fi
    [ -f "$golden/$1.txt" ] || { say "no $golden/$1.txt"; return 1; }
    same_files "$golden/$1.txt" "$dir/screen"
}

# screens NAME RECORD... with a script on stdin: the same in two sizes, each in UTF-8 and in ASCII, and in the least size.
# The script's last line is `save`.
screens() {
    screens_name=$1
    shift
    cat >"$dir/steps"
    for of in C.UTF-8:80x24 C.UTF-8:120x40 C.UTF-8:60x12 C:80x24 C:120x40; do
        size=${of#*:}
        tui "${of%:*}" "$size" "$@" <"$dir/steps"
        case $of in C:*) size=$size-ascii ;; esac
        same_screen "$screens_name-$size"
    done
}

# ---- a terminal: tmux with a server of its own, without the user's settings ---------------------------------------

# A server for each terminal, at a socket in the test's own folder: no name is shared with another process, and none is used again,
# which a server that is still ending would hold. (A long path is no name of a socket.)
server=0
tm() {
    tmux -S "$(socket)" -f /dev/null "$@"
}
socket() {
    if [ ${#dir} -lt 80 ]; then echo "$dir/tmux-$server"; else echo "/tmp/${dir##*/}-$server"; fi
}
end_terminal() {
    tm kill-server 2>/dev/null || true
    [ ${#dir} -lt 80 ] || rm -f "$(socket)"
}

# new_terminal SIZE COMMAND: a terminal that runs it. Whose login has no shell has one here.
new_terminal() {
    need tmux
    server=$((server + 1))
    trap end_terminal EXIT
    env -i PATH="$PATH" HOME="$dir" SHELL=/bin/sh LC_ALL=C.UTF-8 TERM=xterm-256color tmux -u -S "$(socket)" -f /dev/null \
        new-session -d -s t -x "${1%x*}" -y "${1#*x}" "$2" 2>"$dir/tmux" ||
        skip "tmux does not start here: $(head -n 1 "$dir/tmux")"
}

# terminal SIZE VARIABLES...: an interactive shell in it that knows $driftscope and has $dir as its folder.
terminal() {
    size=$1
    shift
    new_terminal "$size" "cd '$dir' && exec env -i PATH='$PATH' HOME='$dir' PS1='ready> ' TERM=screen LC_ALL=C.UTF-8 \
        driftscope='$driftscope' $* sh -i"
    shows 'ready>'
}
keys() { tm send-keys -t t "$@"; }
type_line() { tm send-keys -t t -l "$1" && keys Enter; }
capture() { tm capture-pane -p -t t "$@"; }
shown() { echo "    the terminal shows:"; capture; } # for `eventually`

# screen_line N PATTERN; screen_is FILE: all of it.
screen_line() { capture | sed -n "$1p" | grep -q -e "$2"; }
screen_is() { capture | sed 's/ *$//' | cmp -s - "$1"; }
screen_has() { capture | grep -qF -e "$1"; }
screen_lacks() { ! capture | grep -qF -e "$1"; }
shows() { eventually screen_has "$1"; }
# The same with what has scrolled away, and for a pattern.
past_has() { capture -J -S -200 | grep -q -e "$1"; }
