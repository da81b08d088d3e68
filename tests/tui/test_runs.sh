# test_runs.sh: the views Runs and Environment: golden screens, exports.
. tests/tui/lib.sh

with() {
    record "$@"
    cd "$records"
}

test_runs_screens() {
    with unstable
    screens runs unstable.h5 <<'END'
view runs
save
END
}

test_runs_further_down() {
    with unstable
    tui C.UTF-8 80x24 unstable.h5 <<'END'
view runs
keys G
save
END
    same_screen runs-below-80x24
    tui C.UTF-8 80x24 unstable.h5 <<'END'
view runs
key f
save
END
    same_screen runs-first-80x24
}

test_runs_of_one_trial() {
    with one
    tui C.UTF-8 80x24 one.h5 <<'END'
view runs
save
END
    same_screen runs-one-80x24
}

test_environment_screens() {
    with drift
    screens environment drift.h5 <<'END'
view environment
save
END
}

test_environment_of_two() {
    with drift second
    screens environment-two drift.h5 second.h5 <<'END'
view environment
save
END
    tui C.UTF-8 80x24 drift.h5 second.h5 <<'END'
view environment
key e
save
END
    expect 0
    grep -q '^>compiler .*gcc 12.*gcc 13' "$dir/screen"
}

test_names_are_escaped() {
    with names
    tui C.UTF-8 100x30 names.h5 <<'END'
view environment
save
END
    same_screen environment-names-100x30
    ! LC_ALL=C grep -q "[[:cntrl:]]" "$dir/screen"
}

test_export_is_what_is_shown() {
    with unstable
    need python3
    tui C.UTF-8 80x24 unstable.h5 <<END
view runs
export $dir/runs.json
export $dir/runs.tsv
END
    expect 0
    python3 - "$dir/runs.json" <<'END'
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "driftscope.table/1", d["schema"]
assert len(d["rows"]) >= 16, len(d["rows"])
END
    [ "$(wc -l <"$dir/runs.tsv")" -ge 17 ]
}

run_tests
