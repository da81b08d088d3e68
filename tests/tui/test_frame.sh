# test_frame.sh: what is around the views: help, prompt, messages, sizes, scripts and their mistakes, and no terminal.
. tests/tui/lib.sh

test_help_screen() {
    record drift
    screens help "$records/drift.h5" <<'END'
key ?
save
END
}

test_help_names_every_key_and_command() {
    record one
    tui C.UTF-8 120x200 "$records/one.h5" <<'END'
help
save
END
    expect 0
    for text in 'next-drift' 'S-Tab' '^Z' ':goto' ':save-display' 'Marks'; do
        has "$dir/screen" "$text"
    done
    [ "$(grep -c 'Space' "$dir/screen")" -eq 1 ]
}

test_search_in_help() {
    record one
    tui C.UTF-8 80x24 "$records/one.h5" <<'END'
help
keys /jump in<Enter>
save
END
    expect 0
    grep -q '^>w .*the next jump in size' "$dir/screen"
    tui C.UTF-8 80x24 "$records/one.h5" <<'END'
help
keys \drift !before<Enter>
save
END
    expect 0
    has "$dir/screen" 'filter drift !before'
    has "$dir/screen" 'next-drift'
    hasnt "$dir/screen" 'previous-drift'
    tui C.UTF-8 80x24 "$records/one.h5" <<'END'
help
keys \drift<Esc>
save
END
    expect 0
    hasnt "$dir/screen" 'filter drift'
}

test_prompt_completes() {
    record drift
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
keys :got<Tab>1,q<Tab>
save
END
    expect 0
    grep -q '^:goto 1,q_proj$' "$dir/screen"
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
keys :goto 1,k<Tab>
save
END
    expect 0
    has "$dir/screen" '1,k_proj  1,kv_write/k'
    grep -q '^:goto 1,k$' "$dir/screen"
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
keys :goto 3,down<Enter>
keys :<Up>
save
END
    expect 0
    has "$dir/screen" 'L03 down'
    grep -q '^:goto 3,down$' "$dir/screen"
}

test_messages() {
    record drift
    tui C.UTF-8 60x12 "$records/drift.h5" <<'END'
help
keys :goto 3,dwon<Enter>
save
END
    expect 0
    has "$dir/screen" "did you mean"
    hasnt "$dir/screen" '? help'
    tui C.UTF-8 60x12 "$records/drift.h5" <<'END'
help
keys :goto 3,dwon<Enter>j
save
END
    has "$dir/screen" '? help'
}

test_too_small() {
    record drift
    for size in 59x12 60x11 20x5 1x1 1000x1; do
        tui C.UTF-8 $size "$records/drift.h5" <<'END'
keys jkG<PgUp>?
save
END
        expect 0
        case $size in 59x12 | 60x11) has "$dir/screen" "driftscope needs 60x12; this is $size" ;; esac
    done
    tui C.UTF-8 20x5 "$records/drift.h5" <<'END'
size 80x24
help
save
END
    has "$dir/screen" 'Moving'
}

# Of a version that this program does not read: who wrote it, in the error and on the screen that waits for a better one.
test_a_record_of_a_newer_version() {
    record newer drift
    run "$driftscope" tui "$records/newer.h5"
    expect 2
    has "$dir/err" "is a record of version 4, written by driftscope 0.1.0 (0000000) at 2026-01-02T03:04:05Z on synthetic; this program reads"
    has "$dir/err" 'hint: read it with the version of driftscope that wrote it'
    tui C.UTF-8 80x24 "$records/newer.h5" <<'END'
save
END
    expect 2
    run "$driftscope" diff "$records/drift.h5" "$records/newer.h5"
    expect 2
    cd "$records"
    for view in overview layers site tensor tokens runs environment; do
        tui C.UTF-8 80x24 --follow newer.h5 <<END
view $view
keys eEfwW]}arsdxyR<Enter>
view $view
save
END
        expect 0
        has "$dir/screen" 'waiting for newer.h5: is a record of version 4'
    done
}

test_place_follows_keys() {
    record drift
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
save
END
    has "$dir/screen" 'arm 2 batch 4 vs 0  L01 q_proj  row 0:0'
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
keys }}]]
save
END
    has "$dir/screen" 'arm 2 batch 4 vs 0  L03 q_proj  row 0:2'
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
keys {]]ar
save
END
    has "$dir/screen" 'arm 3 threads 2 vs 1  L00 q_proj  row 0:2'
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
arm 3
ref 2
goto kv_write/k
set metric abs
set number hex
save
END
    has "$dir/screen" 'arm 3 threads 2 vs 2  L00 kv_write/k'
    has "$dir/screen" 'max abs, hex'
    tui C.UTF-8 80x24 --arm 3 --site 2,down "$records/drift.h5" <<'END'
help
save
END
    has "$dir/screen" 'arm 3 threads 2 vs 0  L02 down'
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
goto 0,k_proj
key f
save
END
    has "$dir/screen" 'L01 q_proj'
}

test_attributes() {
    record drift
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
help
save attributes
END
    expect 0
    has "$dir/screen" '-- colours'
    grep -q '^\.cccccc$' "$dir/screen"
    run env NO_COLOR=1 LC_ALL=C.UTF-8 "$driftscope" tui --script "$dir/script" "$records/drift.h5"
    expect 0
    hasnt "$dir/screen" 'cccc'
    has "$dir/screen" '.111111'
    run env LC_ALL=C.UTF-8 "$driftscope" tui --color=never --script "$dir/script" "$records/drift.h5"
    hasnt "$dir/screen" 'cccc'
}

# What roles look like: with colours and without, each told from the others.
test_roles() {
    record drift
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
view layers
save attributes
END
    same_screen roles-80x24
    run env -i PATH="$PATH" NO_COLOR=1 LC_ALL=C.UTF-8 "$driftscope" tui --script "$dir/script" "$records/drift.h5"
    same_screen roles-mono-80x24
}

test_ascii() {
    record names
    for arguments in "C 80x24" "C.UTF-8 80x24 --ascii"; do
        # shellcheck disable=SC2086
        tui $arguments "$records/names.h5" <<'END'
help
save
END
        expect 0
        ! LC_ALL=C grep -q '[^ -~]' "$dir/screen"
    done
    tui C 80x24 "$records/names.h5" <<'END'
set ascii off
END
    expect 2
    has "$dir/err" 'ASCII only'
}

test_export() {
    record drift
    tui C.UTF-8 80x24 "$records/drift.h5" <<END
help
filter next-
export $dir/a.txt
export $dir/a.tsv
export $dir/a.json
export "$dir/with space" json
save
END
    expect 0
    has "$dir/screen" '7 lines in'
    [ "$(wc -l <"$dir/a.tsv")" -eq 8 ]
    same_files "$dir/a.json" "$dir/with space"
    need python3
    python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); assert len(d["rows"]) == 7, d' "$dir/a.json"
    tui C.UTF-8 80x24 "$records/drift.h5" <<END
help
export $dir/a.txt
END
    expect 2
    has "$dir/err" "is there already"
    has "$dir/err" "export! replaces it"
    tui C.UTF-8 80x24 "$records/drift.h5" <<END
help
keys mm
export! $dir/a.tsv
END
    expect 0
    [ "$(wc -l <"$dir/a.tsv")" -eq 3 ]
    mkdir "$dir/folder"
    tui C.UTF-8 80x24 "$records/drift.h5" <<END
help
export! $dir/folder
END
    expect 2
    [ -z "$(find "$dir" -name '*.??????' -newer "$dir/script")" ]
}

# Where there is no room for it nothing is there afterwards, and what was there is as it was.
test_export_without_room() {
    record nan
    mkdir "$dir/to"
    echo old >"$dir/to/old.txt"
    for line in "export $dir/to/new.tsv" "export! $dir/to/old.txt" "export $dir/to/new.json" "save-display $dir/to/old.txt"; do
        printf '%s\n' 'view tensor' "$line" >"$dir/s"
        (ulimit -f 8 && ds tui --script "$dir/s" --size 300x100 "$records/nan.h5" && expect 2) || return 1
        has "$dir/err" "$dir/s:2: "
        has "$dir/err" "cannot write: File too large"
        [ "$(ls "$dir/to")" = old.txt ] && [ "$(cat "$dir/to/old.txt")" = old ]
    done
}

# What is written never takes the place of a record, whether it is the one on the screen or another, and whichever command
# writes it.
test_records_are_not_replaced() {
    record one same
    cp "$records/same.h5" "$dir/other"
    cp "$records/one.h5" "$dir/this.h5"
    for file in "$dir/other" "$dir/this.h5"; do
        cp "$file" "$dir/before"
        for line in "export! $file" "export! $file json" "save-display $file"; do
            printf '%s\n' help "$line" >"$dir/s"
            ds tui --script "$dir/s" "$dir/this.h5"
            expect 2
            has "$dir/err" "$dir/s:2: $file: is a record"
            cmp "$dir/before" "$file"
        done
    done
}

# A wrong line says where it is and what was meant; what came before it was done.
test_script_mistakes() {
    record one
    printf 'help\n# a comment\n\n:goto 0,x\n' >"$dir/s"
    ds tui --script "$dir/s" "$records/one.h5"
    expect 2
    has "$dir/err" "$dir/s:4: "
    printf 'nxt-drift\n' >"$dir/s"
    ds tui --script "$dir/s" "$records/one.h5"
    expect 2
    has "$dir/err" "$dir/s:1: unknown command 'nxt-drift'"
    has "$dir/err" "did you mean 'next-drift'?"
    for line in 'key Entr' 'keys <Enter' 'view nothing' 'set metric x' 'set x y' 'arm 77' 'arm x' 'sort nothing' 'size 0x0' 'size 5' \
        'save-display' "save-display $dir/no/folder" 'export' 'search xyzzy' 'wait 5'; do
        printf 'help\n%s\nsave-display %s\n' "$line" "$dir/late" >"$dir/s"
        ds tui --script "$dir/s" "$records/one.h5"
        expect 2
        has "$dir/err" "$dir/s:2: "
        [ ! -e "$dir/late" ]
    done
    ds tui --script "$dir/none" "$records/one.h5"
    expect 2
    ds tui --script "$dir" "$records/one.h5"
    expect 2
    # The lines after a zero byte would not be done, and nobody would know.
    printf 'help\n\000\nsave-display %s\n' "$dir/late" >"$dir/s"
    ds tui --script "$dir/s" "$records/one.h5"
    expect 2
    has "$dir/err" 'zero byte'
    printf '\r\nhelp\r\nquit\r\nunknown\n' >"$dir/s"
    ds tui --script "$dir/s" "$records/one.h5"
    expect 0
}

test_arguments() {
    record one
    : >"$dir/s"
    ds tui
    expect 2
    ds tui "$dir/none.h5" --script "$dir/s"
    expect 2
    ds tui "$records/one.h5" --size 80x24
    expect 2
    has "$dir/err" '--script'
    for size in 80 0x24 80x 80x24x 1001x24 x; do
        ds tui "$records/one.h5" --script "$dir/s" --size $size
        expect 2
        has "$dir/err" '--size'
    done
    ds tui "$records/one.h5" --script "$dir/s" --view ovrview
    expect 2
    ds tui --follow "$records/one.h5" "$records/one.h5" --script "$dir/s"
    expect 2
}

# Without a terminal it prints what show and diff print, and drift is no failure.
test_no_terminal() {
    record drift second
    ds show "$records/drift.h5"
    expect 1
    sed 's/ show / tui /' "$dir/out" >"$dir/show"
    ds tui "$records/drift.h5"
    expect 0
    sed 's/ show / tui /' "$dir/out" >"$dir/tui"
    same_files "$dir/show" "$dir/tui"
    ds tui "$records/drift.h5" "$records/second.h5"
    expect 0
    has "$dir/out" 'drift: '
    ds tui "$dir/none.h5"
    expect 2
}

test_exit_code_of_scripts() {
    record drift
    tui C.UTF-8 80x24 "$records/drift.h5" <<'END'
keys Q
key j
unknown
END
    expect 0
    ds tui --error-exit=9 --script "$dir/none" "$records/drift.h5"
    expect 9
}

# The keys that the walk of docs/UI.md names lead somewhere, and writing its screens anew leaves its words alone.
without_screens() { awk '/^<!-- screen: / { print; inside = 1; next } inside && (/^    / || $0 == "") { next } { inside = 0; print }' "$1"; }
# What a screen shows is a matter of its size, not of the sizes before it; and a line above a table that the screen cuts
# goes on below.
test_sizes_before_leave_no_trace() {
    record drift
    for view in overview layers site tensor tokens runs environment help; do
        tui C.UTF-8 200x60 "$records/drift.h5" <<END
view $view
save
size 60x15
save
size 80x24
save
END
        expect 0
        mv "$dir/screen" "$dir/after"
        tui C.UTF-8 80x24 "$records/drift.h5" <<END
view $view
save
END
        expect 0
        same_files "$dir/screen" "$dir/after"
    done
}

test_words_cut_by_the_screen_are_shown() {
    record nan
    tui C.UTF-8 80x24 "$records/nan.h5" <<'END'
help
keys /gives up<Enter>
save
END
    expect 0
    has "$dir/screen" 'back to where Enter was pressed; Esc firs›'
    has "$dir/screen" 'back to where Enter was pressed; Esc first gives up what is being read'
    tui C.UTF-8 80x24 "$records/nan.h5" <<'END'
view tensor
save
END
    expect 0
    has "$dir/screen" '  abs Inf, NaN on a side'
}

test_walk_through_a_record() {
    record drift
    cp docs/UI.md "$dir/UI.md"
    run sh tests/tools/readme_walk "$driftscope" "$records/drift.h5" "$dir/UI.md"
    expect 0
    without_screens docs/UI.md >"$dir/before"
    without_screens "$dir/UI.md" >"$dir/after"
    same_files "$dir/before" "$dir/after"
    # One screen a step, each another.
    sed -n 's/^     \(overview\|layers\|tensor\)  [0-9].*/\1/p' "$dir/UI.md" >"$dir/views"
    printf '%s\n' overview layers tensor | same_files - "$dir/views"
    sed -n 's/^     \(overview\|layers\|tensor\)  [0-9].*/\1/p' docs/UI.md | same_files - "$dir/views"
}

run_tests
