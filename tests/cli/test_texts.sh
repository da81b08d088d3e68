# test_texts.sh: README, man page and completions against the program and the shells that read them.
. tests/cli/lib.sh

test_table_of_options_is_the_generated_one() {
    ds help --markdown
    expect 0
    sed -n '/<!-- options: begin/,/<!-- options: end/p' docs/OPTIONS.md | grep '^|' >"$dir/readme"
    # To renew it: paste the output of `driftscope help --markdown` between the two comments.
    same_files "$dir/out" "$dir/readme"
}

test_readme_shows_a_verdict() {
    sed -n '/<!-- demo output: begin/,/<!-- demo output: end/p' README.md | sed 's/^    //' >"$dir/demo"
    grep -q '^kernel  *repeat  *batch ' "$dir/demo" || say "README.md shows no matrix of kernels"
    grep -q '^kernel  *repeat  *batch ' "$dir/demo"
    # The answer is the last line.
    [ "$(tail -n 2 "$dir/demo" | head -n 1 | cut -c1-15)" = "drift: first at" ]
}

# What the commands print is this machine's; that they are still taken is asked of those that need no model file.
test_readme_commands_are_taken() {
    need python3
    need git
    # shellcheck disable=SC2016
    run python3 tests/tools/readme_blocks.py "$driftscope" README.md --errors --only '$M $T' --only '$ONE' --only 'fingerprint a' --only 'doctor -f'
    expect 0
    empty "$dir/out"
    for page in docs/*.md; do
        # shellcheck disable=SC2016
        run python3 tests/tools/readme_blocks.py "$driftscope" "$page" --errors --only '$M $T' --only '$ONE' --only 'fingerprint a' --only 'doctor -f'
        expect 0
        empty "$dir/out"
    done
}

# Links without a scheme: the file is there, and the heading in it, whose anchor is its words in small letters, by GitHub's rule.
test_pages_link_to_what_exists() {
    need python3
    cat >"$dir/links.py" <<'END'
import glob, os, re

def anchors(page):
    text = re.sub(r"(?ms)^```.*?^```$", "", open(page, encoding="utf-8").read())
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"(?m)^#+ +(.*?) *$", text)}

for page in ["README.md"] + sorted(glob.glob("*/*.md") + glob.glob("*/*/*.md")):
    if page.startswith("build"):
        continue
    for link in re.findall(r"\]\(([^)\s:]+)\)", open(page, encoding="utf-8").read()):
        path, _, anchor = link.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(path):
            print(f"{page}: {link}: no such file")
        elif anchor and anchor not in anchors(path):
            print(f"{page}: {link}: no such heading")
END
    run python3 "$dir/links.py"
    expect 0
    empty "$dir/out"
}

test_every_folder_has_a_readme() {
    for folder in base kernels probes dumps report engine tui cli docs tests; do
        [ -s "$folder/README.md" ] || {
            say "$folder has no README.md"
            exit 1
        }
    done
}

test_man_page_has_no_warnings() {
    need man
    ds help --man -o "$dir/driftscope.1"
    expect 0
    run env MANWIDTH=80 MANPAGER=cat man --warnings -l "$dir/driftscope.1"
    expect 0
    empty "$dir/err"
    has "$dir/out" "EXIT STATUS"
    has "$dir/out" "error-exit"
}

# complete WORD...: what bash offers for the last word.
complete() {
    ds help --completion bash -o "$dir/bash"
    expect 0
    bash -c '
        source "$0"
        COMP_WORDS=(driftscope "$@")
        COMP_CWORD=$#
        _driftscope
        printf "%s\n" "${COMPREPLY[@]}"' "$dir/bash" "$@" | sed 's/ *$//' | sort >"$dir/offers"
}

test_bash_completes() {
    need bash
    complete ""
    has "$dir/offers" kernels
    complete "kern"
    [ "$(cat "$dir/offers")" = kernels ]
    complete kernels "--js"
    [ "$(cat "$dir/offers")" = "--json" ]
    complete kernels --color "a"
    [ "$(cat "$dir/offers" | tr '\n' ' ')" = "always auto " ]
    complete kernels --color = "n"
    [ "$(cat "$dir/offers")" = never ]
    complete kernels --color =
    has "$dir/offers" never
    complete help --completion "f"
    [ "$(cat "$dir/offers")" = fish ]
    complete help "ker"
    [ "$(cat "$dir/offers")" = kernels ]
    complete kernels "mat"
    [ "$(cat "$dir/offers")" = matmul ]
    complete kernels "--nothing"
    [ -z "$(cat "$dir/offers")" ]
    complete --json ""
    has "$dir/offers" kernels
}

test_bash_completes_lists_and_files() {
    need bash
    complete run --slot "first,la"
    [ "$(cat "$dir/offers")" = "first,last" ]
    complete run --slot "mi"
    [ "$(cat "$dir/offers")" = middle ]
    mkdir "$dir/files"
    touch "$dir/files/sky model.gguf"
    complete run -m "$dir/files/sk"
    [ "$(cat "$dir/offers")" = "$dir/files/sky model.gguf" ]
    complete run -m "smol"
    has "$dir/offers" smollm2
}

test_zsh_and_fish_read_their_completions() {
    command -v zsh >/dev/null || command -v fish >/dev/null || skip "no zsh and no fish here"
    if command -v zsh >/dev/null; then
        ds help --completion zsh -o "$dir/_driftscope"
        zsh -n "$dir/_driftscope"
        # Loading it and taking apart every specification is what the completion system itself does.
        HOME=$dir zsh -f -c "fpath=($dir \$fpath); autoload -Uz compinit; compinit -D -u; autoload -Uz +X _driftscope" \
            >"$dir/out" 2>&1
        empty "$dir/out"
    fi
    if command -v fish >/dev/null; then
        ds help --completion fish -o "$dir/driftscope.fish"
        HOME=$dir fish --no-config -c "source $dir/driftscope.fish; complete -C 'driftscope kern'" >"$dir/out" 2>"$dir/err"
        empty "$dir/err"
        has "$dir/out" kernels
    fi
}

run_tests
