#!/bin/sh
# test_places.sh: the views Site, Tensor and Tokens: golden screens, walks between them, commands that work.
. tests/tui/lib.sh

# Screens show the record's path in commands: it is the file alone.
with() {
    record "$1"
    cd "$records" || return
}

test_site_screens() {
    with drift
    screens site drift.h5 <<'END'
view site
save
END
}

# Every arm's column is there, beside the panel or above it; wider screens have the other sizes and the digests, too.
test_site_on_large_screens() {
    with drift
    for size in 200x60 300x100; do
        for locale in C.UTF-8 C; do
            tui $locale $size drift.h5 <<'END'
view site
save
END
            same_screen "site-$size$([ $locale = C ] && echo -ascii || true)"
        done
    done
    # Whatever the width, where all of them fit.
    for size in 80x24 100x40 110x40 118x40 119x40 120x40 121x40 130x24 160x50 200x60; do
        tui C.UTF-8 $size drift.h5 <<'END'
view site
save
END
        expect 0
        grep -q '^>0:0 .* a  *a  *b  *a ' "$dir/screen" || { say "$size: not every arm"; cat "$dir/screen" >&2; return 1; }
    done
}

test_site_sections_screens() {
    with drift
    screens site-sections drift.h5 <<'END'
view site
key z
save
END
}

test_site_of_repeats() {
    with unstable
    tui C.UTF-8 120x40 unstable.h5 <<'END'
view site
save
END
    same_screen site-repeats-120x40
}

test_site_of_one_trial() {
    with one
    tui C.UTF-8 80x24 one.h5 <<'END'
view site
save
END
    same_screen site-alone-80x24
    hasnt "$dir/screen" same
}

test_tensor_screens() {
    with nan
    screens tensor nan.h5 <<'END'
view tensor
save
END
}

test_tensor_formats() {
    with nan
    tui C.UTF-8 120x40 nan.h5 <<'END'
view tensor
keys xx
key e
save
END
    same_screen tensor-hex-120x40
    tui C.UTF-8 140x40 nan.h5 <<'END'
view tensor
key x
key w
save
END
    same_screen tensor-a-140x40
}

test_tensor_without_values() {
    with drift
    tui C.UTF-8 80x24 drift.h5 <<'END'
goto 1,down
view tensor
save
END
    same_screen tensor-none-80x24
}

test_tokens_screens() {
    with drift
    screens tokens drift.h5 <<'END'
view tokens
save
END
}

test_names_that_a_terminal_would_obey() {
    with names
    for view in site tensor tokens; do
        tui C.UTF-8 120x40 names.h5 <<END
view $view
save
END
        expect 0
        if LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" "$dir/screen"; then
            say "$view: a control character is on the screen"
            return 1
        fi
    done
}

test_records_that_cannot_be_compared() {
    with drift
    ds run -q -m random:llama,layers=4,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64 --kernels pinned --batch 1 --slot first \
        --neighbours copies --threads 1 --chunk 0 --mode prefill --tokens 1,2,3 -n 1 -o "$dir/other.h5"
    for view in site tensor tokens; do
        tui C.UTF-8 100x24 drift.h5 "$dir/other.h5" <<END
view $view
save
END
        expect 0
        has "$dir/screen" 'nothing to compare'
    done
}

test_a_hundred_thousand_rows() {
    with long
    tui C.UTF-8 120x40 long.h5 <<'END'
view site
key G
key w
key e
save
END
    expect 0
    has "$dir/screen" '100 drift'
}

# From the row to its largest element, and back to where one was.
test_walk() {
    with drift
    tui C.UTF-8 120x40 drift.h5 <<'END'
view site
keys j<Enter>
key w
save
END
    expect 0
    has "$dir/screen" 'row 0:1'
    grep -q '^>  *9 .*!=.*  4 *' "$dir/screen"
    tui C.UTF-8 120x40 drift.h5 <<'END'
view site
keys j<Enter>w<Esc>
save
END
    expect 0
    grep -q '^>0:1 ' "$dir/screen"
    # Steps lead to the logits that they were chosen from.
    tui C.UTF-8 120x40 drift.h5 <<'END'
view tokens
keys jj<Enter>
save
END
    expect 0
    has "$dir/screen" 'logits  row 0:7'
    grep -q '^>0:7 ' "$dir/screen"
}

# shown_command LINE...: the command that y shows after these script lines is in $dir/command.
shown_command() {
    rec=$1
    shift
    printf '%s\n' "$@" 'key y' save >"$dir/steps"
    tui C.UTF-8 600x60 "$rec" <"$dir/steps"
    expect 0
    tail -n 1 "$dir/screen" | sed 's/^ *//' >"$dir/command"
}
works() {
    run sh "$dir/command"
    [ "$code" -le 1 ] || expect 1
}

test_commands_work() {
    ds run -q -m random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9 --kernels pinned,pinned+rmsnorm=reference \
        --batch 1,2 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --repeat 1 -n 2 --tokens 5,9,1,44,23,8 \
        -o "$dir/a b.h5"
    expect 1
    shown_command "$dir/a b.h5" 'view site'
    works
    has "$dir/out" 'layer 0 attn_norm'
    shown_command "$dir/a b.h5" 'view site' 'key a' 'goto 1,kv_write/k'
    works
    has "$dir/out" 'layer 1 kv_write/k'
    shown_command "$dir/a b.h5" 'view tensor'
    works
    has "$dir/out" 'reference'
    shown_command "$dir/a b.h5" 'view tokens'
    works
    has "$dir/out" 'of 3 tokens equal'
    # The commands that stand in the list of launches.
    for what in why tree; do
        tui C.UTF-8 600x60 "$dir/a b.h5" <<END
view site
keys z/$what<Enter>
key y
save
END
        expect 0
        tail -n 1 "$dir/screen" | sed 's/^ *//' >"$dir/command"
        works
        case $what in
        why) has "$dir/out" 'explain: layer 0 attn_norm' ;;
        tree) has "$dir/out" 'order: rmsnorm/reference' ;;
        esac
    done
    # Two records.
    ds run -q -m random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=96,vocab=128,ctx=64,seed=9 --kernels pinned \
        --batch 2,1 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --repeat 1 -n 2 --tokens 5,9,1,44,23,8 \
        -o "$dir/b.h5"
    tui C.UTF-8 600x60 "$dir/a b.h5" "$dir/b.h5" <<'END'
view site
goto 0,q_proj
key y
save
END
    expect 0
    tail -n 1 "$dir/screen" | sed 's/^ *//' >"$dir/command"
    grep -q ' diff .*--site 0,q_proj --long --arm' "$dir/command"
    works
    has "$dir/out" 'layer 0 q_proj'
}

run_tests
