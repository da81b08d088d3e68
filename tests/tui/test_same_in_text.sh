#!/bin/sh
# test_same_in_text.sh: `y` in every view gives a command that runs, and whose output has what the view shows: each row of what the
# view exports is held against it, word by word.
. tests/tui/lib.sh

with() {
    record "$@"
    cd "$records"
}

# in_text: every line that the view exported as text, from the second on, has all its words in one line of $dir/out.
in_text() {
    awk '
        function words(line) { gsub(/[ \t;:█]+/, " ", line); return " " line " " }
        # A side may have a line of its own: with the line before.
        NR == FNR { text[++n] = before words($0); before = words($0); next }
        FNR == 1 { next }
        {
            k = split(words($0), word, " ")
            found = 0
            for (l = 1; l <= n && !found; l++) {
                found = 1
                for (i = 1; i <= k && found; i++) found = index(text[l], " " word[i] " ")
            }
            rows++
            if (!found) { print "not in the text: " $0; bad = 1 }
        }
        END { if (bad || !rows) { print rows + 0 " rows"; exit 1 } }' "$dir/out" "$dir/view.txt" >"$dir/missing" || {
        say "$(cat "$dir/command"):"
        head -n 10 "$dir/missing" >&2
        return 1
    }
}

# shows RECORDS with the steps to the view on stdin: exports it to $dir/view.txt, runs its command.
showing() {
    rm -f "$dir/view.txt"
    { cat && printf 'export %s\nsize 800x60\nkey y\nsave\n' "$dir/view.txt"; } >"$dir/steps"
    tui C.UTF-8 120x40 "$@" <"$dir/steps"
    expect 0
    tail -n 1 "$dir/screen" | sed 's/^ *//' >"$dir/command"
    run sh "$dir/command"
    [ "$code" -le 1 ] || expect 1
    empty "$dir/err"
}

test_tensor() {
    with nan drift
    for name in nan drift; do
        for format in decimal %a hex; do
            showing $name.h5 <<END
goto 1,q_proj
view tensor
set number $format
END
            has "$dir/command" '--row 0:0'
            in_text
        done
        showing $name.h5 <<'END'
goto 1,q_proj
view tensor
set metric rel
END
        in_text
    done
    # What is not dumped: the command says the same.
    tui C.UTF-8 800x60 drift.h5 <<'END'
goto 1,down
view tensor
key y
save
END
    tail -n 1 "$dir/screen" | sed 's/^ *//' >"$dir/command"
    run sh "$dir/command"
    expect 1
    has "$dir/out" 'its values are on neither side'
}

test_tokens() {
    with drift unstable
    for name in drift unstable; do
        showing $name.h5 <<'END'
view tokens
END
        in_text
    done
}

test_environment() {
    with drift second
    showing drift.h5 <<'END'
view environment
filter !"drift.h5"
END
    in_text
    showing drift.h5 second.h5 <<'END'
view environment
END
    # Both sides of a row stand in two lines where they differ.
    in_text
}

test_site() {
    with drift
    for metric in bits ulp abs rel; do
        showing drift.h5 <<END
view site
set metric $metric
END
        # Headings have names of their own, and the commands in the list of launches are not of the record.
        grep -v -e ' reads  *label' -e ' rows  *' -e '^row  ' -e '^launch ' -e '^why ' -e '^its tree ' -e 'is in no record' "$dir/view.txt" >"$dir/rows"
        { echo && sed 's/^\([a-z]*  *[^ ]*  *\)= /\1/; s/^L0*\([0-9][0-9]*\) /layer \1 /' "$dir/rows"; } >"$dir/view.txt"
        in_text
    done
}

test_layers() {
    with drift
    for metric in ulp:5 abs:6 rel:7; do
        showing drift.h5 <<END
view layers
set metric ${metric%:*}
END
        has "$dir/command" '--sites --long'
        has "$dir/out" 'layer 1 q_proj             origin         6      1728          13       1e-06       3e-07'
    done
}

test_runs() {
    with unstable
    showing unstable.h5 <<'END'
view runs
END
    sed -n '/^trials/,/^$/p' "$dir/view.txt" >"$dir/rows"
    mv "$dir/rows" "$dir/view.txt"
    in_text
}

test_overview() {
    with drift
    showing drift.h5 </dev/null
    has "$dir/out" 'matmul/openblas'
    has "$dir/out" 'drift: first at layer 1 q_proj'
}

# An arm of one record against another arm of the other, either way round.
test_any_pair_of_two_records() {
    with drift second
    for view in layers site tokens; do
        for arms in 5:0 0:5 4:1 1:4; do
            showing drift.h5 second.h5 <<END
arm ${arms%:*}
ref ${arms#*:}
goto 1,q_proj
view $view
END
            has "$dir/out" 'drift: first at'
        done
    done
}

run_tests
