#!/bin/sh
# test_overview.sh: the views Overview and Layers: golden screens, walks between them, and that their commands show the same.
. tests/tui/lib.sh

# Screens show the record's path in commands: it is the file alone.
with() {
    record "$@"
    cd "$records"
}

test_overview_screens() {
    with drift
    screens overview drift.h5 <<'END'
save
END
}

test_overview_below() {
    with drift
    screens overview-below drift.h5 <<'END'
last
save
END
}

test_overview_of_repeats() {
    with unstable
    tui C.UTF-8 80x24 unstable.h5 <<'END'
save
END
    same_screen overview-repeats-80x24
}

# Dumped rows are held against their digests before anybody asks for them, as `show` and `diff` do it.
test_damaged_rows_are_told() {
    with bent bent-same
    tui C.UTF-8 100x30 bent.h5 <<'END'
save
END
    same_screen overview-bent-100x30
    tui C.UTF-8 100x30 bent.h5 <<'END'
goto 1,q_proj
view site
save
END
    same_screen site-bent-100x30
    has "$dir/screen" "damaged: the dumped bytes of 2 rows do not have their digest"
    # where nothing differs, nothing is a pass: the words are those of show
    tui C.UTF-8 120x40 bent-same.h5 <<'END'
save
END
    expect 0
    ds show bent-same.h5
    expect 2
    sentence=$(tail -n 1 "$dir/out")
    case $sentence in incomparable:*) ;; *) say "$sentence"; return 1 ;; esac
    has "$dir/screen" "$sentence"
    has "$dir/screen" " 1 damaged row "
    # of two records it is told of which
    tui C.UTF-8 120x40 bent-same.h5 bent-same.h5 <<'END'
save
END
    has "$dir/screen" "damage        A: layer 1 q_proj, request 0, position 1"
    has "$dir/screen" "incomparable: the records are damaged: 2 dumped rows do not have their digest"
}

test_overview_of_nan() {
    with nan
    tui C.UTF-8 100x50 nan.h5 <<'END'
save
END
    same_screen overview-nan-100x50
}

test_overview_of_no_drift_and_one_trial() {
    with same one
    tui C.UTF-8 80x24 same.h5 <<'END'
save
END
    same_screen overview-same-80x24
    tui C 80x24 one.h5 <<'END'
save
END
    same_screen overview-one-80x24-ascii
}

test_overview_of_two_records() {
    with drift second
    tui C.UTF-8 100x30 drift.h5 second.h5 <<'END'
save
END
    same_screen overview-two-100x30
}

test_layers_screens() {
    with drift
    screens layers drift.h5 <<'END'
view layers
save
END
}

# Beside and below the map: lists of sites, stages, and the growth curve.
test_layers_on_a_large_screen() {
    with drift
    for locale in C.UTF-8 C; do
        tui $locale 300x100 drift.h5 <<'END'
view layers
save
END
        same_screen "layers-300x100$([ $locale = C ] && echo -ascii || true)"
    done
}

test_layers_in_every_metric() {
    with drift
    for metric in bits abs rel; do
        tui C.UTF-8 80x24 drift.h5 <<END
view layers
set metric $metric
save
END
        same_screen "layers-$metric-80x24"
    done
}

test_layers_of_nan() {
    with nan
    tui C.UTF-8 80x24 nan.h5 <<'END'
view layers
save
END
    same_screen layers-nan-80x24
}

test_layers_of_repeats() {
    with unstable
    tui C 80x24 unstable.h5 <<'END'
view layers
save
END
    same_screen layers-repeats-80x24-ascii
}

test_layers_without_drift_fold() {
    with same
    tui C.UTF-8 80x24 same.h5 <<'END'
view layers
save
END
    same_screen layers-same-80x24
    has "$dir/screen" "L00-03"
    tui C.UTF-8 80x24 same.h5 <<'END'
view layers
fold
save
END
    expect 0
    hasnt "$dir/screen" "L00-03"
    has "$dir/screen" "L02"
}

test_layers_of_one_trial() {
    with one
    tui C.UTF-8 80x24 one.h5 <<'END'
view layers
save
END
    same_screen layers-one-80x24
}

test_layers_of_two_records() {
    with drift second
    tui C.UTF-8 120x40 drift.h5 second.h5 <<'END'
view layers
save
END
    same_screen layers-two-120x40
}

test_layers_on_a_wide_screen() {
    with drift
    tui C.UTF-8 240x30 drift.h5 <<'END'
view layers
set metric rel
save
END
    same_screen layers-wide-240x30
}

# From the matrix to the map of the arm that shows it, and on to the site.
test_walk() {
    with drift
    tui C.UTF-8 120x24 drift.h5 <<'END'
next-drift
enter
save
END
    expect 0
    has "$dir/screen" "arm 3 threads 2 vs 0"
    has "$dir/screen" "L02 down"
    has "$dir/screen" " layers "
    tui C.UTF-8 120x24 drift.h5 <<'END'
next-drift
enter
enter
save
END
    expect 0
    has "$dir/screen" " site "
    has "$dir/screen" "L02 down"
    tui C.UTF-8 120x24 drift.h5 <<'END'
first-origin
save
END
    expect 0
    has "$dir/screen" " site "
    has "$dir/screen" "L01 q_proj"
    tui C.UTF-8 120x24 drift.h5 <<'END'
first-origin
back
save
END
    expect 0
    has "$dir/screen" " overview "
}

# The arm and the reference, on the fly.
test_other_pairs() {
    with drift
    tui C.UTF-8 120x24 drift.h5 <<'END'
view layers
next-arm
save
END
    expect 0
    has "$dir/screen" "arm 3 (threads 2) against arm 0: threads 1"
    tui C.UTF-8 120x24 drift.h5 <<'END'
view layers
next-reference
save
END
    expect 0
    has "$dir/screen" "arm 2 (batch 4) against arm 1: batch 2"
}

# The marks of the map, unfolded, are those of the text grid that its command prints: healed ones are same there, jumps have
# the mark without.
grid_marks() {
    sed -n 's/^L\([0-9]*\)  *\(.*[^ ]\) *$/\1 \2/p' | tr -s ' '
}
map_marks() {
    awk -F '\t' '/^L[0-9]/ { row = substr($1, 2); for (i = 3; i <= NF; i++) if ($i != "") row = row " " substr($i, 1, 1); print row }' "$1" |
        tr ',@O^X' '.#o-x'
}

test_commands_show_the_same() {
    with drift unstable same nan
    for name in drift unstable same; do
        for arm in 0 1 2 3; do
            tui C 60x50 $name.h5 <<END
arm $arm
view layers
fold
export $dir/map-$name-$arm.tsv
size 240x50
command
save
END
            expect 0
            line=$(grep -o 'show [^ ]*\.h5 --sites --long --arm [0-9]* --against [0-9]*' "$dir/screen")
            # shellcheck disable=SC2086
            "$driftscope" $line >"$dir/text" || [ $? -le 1 ]
            grid_marks <"$dir/text" >"$dir/grid"
            map_marks "$dir/map-$name-$arm.tsv" >"$dir/map"
            [ -s "$dir/grid" ]
            same_files "$dir/grid" "$dir/map"
        done
    done
}

test_overview_command() {
    with drift
    tui C 100x50 drift.h5 <<'END'
command
save
END
    expect 0
    grep -q 'show drift.h5$' "$dir/screen"
}

run_tests
