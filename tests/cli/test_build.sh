# test_build.sh: the Makefile: no fast-math by any way, what is made again and what is not, install and uninstall, the help.
. tests/cli/lib.sh

# A make that would only say what it does, in a build folder that does not exist.
dry_make() { run make -n --no-print-directory BUILD="$dir/build" "$@" all; }

test_fast_math_flags_stop_the_build() {
    dry_make
    expect 0
    for flag in -ffast-math -Ofast -funsafe-math-optimizations -fassociative-math -freciprocal-math -ffinite-math-only \
        -fno-signed-zeros -ffp-contract=fast -ffp-contract=on -mdaz-ftz --use_fast_math -mfpmath=387; do
        for place in CFLAGS LDFLAGS CPPFLAGS; do
            dry_make "$place=-g $flag"
            expect 2
            has "$dir/err" "fast-math flag: $flag"
        done
    done
    dry_make CC="gcc -ffast-math"
    expect 2
    run env CFLAGS=-ffast-math make -n --no-print-directory BUILD="$dir/build" all
    expect 2
}

# A flag that hides from the Makefile (a response file) is found by the compiler's own macros.
test_hidden_fast_math_stops_the_compiler() {
    echo '-ffast-math' >"$dir/hidden"
    echo 'int f(void); int f(void) { return 0; }' >"$dir/f.c"
    for flag in "@$dir/hidden" -ffast-math -Ofast -freciprocal-math -ffinite-math-only -fno-signed-zeros; do
        run gcc -O2 "$flag" -include base/numbers.h -c -o "$dir/f.o" "$dir/f.c"
        expect 1
        has "$dir/err" "a fast-math flag is in force"
    done
    run gcc -O2 -ffp-contract=off -include base/numbers.h -c -o "$dir/f.o" "$dir/f.c"
    expect 0
    # Every compilation includes that header.
    make -n --no-print-directory BUILD="$dir/build" all >"$dir/commands"
    [ "$(grep -c -e ' -c -o ' "$dir/commands")" -gt 10 ]
    [ "$(grep -e ' -c -o ' "$dir/commands" | grep -cv -e '-include base/numbers.h')" -eq 0 ]
    [ "$(grep -e ' -c -o ' "$dir/commands" | grep -cv -e '-ffp-contract=off')" -eq 0 ]
}

test_sources_may_not_ask_for_fast_math() {
    while IFS= read -r line; do
        printf '%s\n' "$line" >"$dir/bad.c"
        run tests/tools/check_numbers "$dir/bad.c"
        expect 1
        has "$dir/err" "bad.c:1:"
    done <<'END'
#pragma GCC optimize("fast-math")
# pragma GCC optimize ("O3")
#pragma STDC FP_CONTRACT ON
#pragma clang fp contract(fast)
_Pragma("GCC optimize(\"fast-math\")")
__attribute__((optimize("fast-math"))) static float f(float x);
static float f(float x) __attribute__((noinline, optimize("O3")));
__attribute__((__optimize__("-Ofast"))) void g(void);
END
    while IFS= read -r line; do
        printf '%s\n' "$line" >"$dir/good.c"
        run tests/tools/check_numbers "$dir/good.c"
        expect 0
    done <<'END'
#pragma STDC FP_CONTRACT OFF
/* never -ffast-math */
int optimize(int x);
__attribute__((target("avx2"))) void g(void);
#pragma GCC diagnostic push
END
}

test_program_starts_with_denormals_on() {
    need gcc
    ldd "$driftscope" >"$dir/libraries"
    hasnt "$dir/libraries" blas
    hasnt "$dir/libraries" cuda
    # crtfastmath.o would bring this constructor.
    nm "$driftscope" >"$dir/symbols"
    hasnt "$dir/symbols" set_fast_math
}

test_help_lists_every_target() {
    run make --no-print-directory help
    expect 0
    for target in all demo model test bench asan lint dist gpu-check install uninstall clean deps help; do
        has "$dir/out" "  make $target "
    done
    # Whatever a target is called: those that say what they do are listed.
    [ "$(grep -c '^  make ' "$dir/out")" -eq "$(grep -cE '^[^ #:=]+:[^=].* ## |^[^ #:=]+: ## ' Makefile)" ]
}

test_missing_libraries_are_named() {
    run env PKG_CONFIG_LIBDIR="$dir" PKG_CONFIG_PATH="$dir" make -n --no-print-directory BUILD="$dir/build" all
    expect 2
    has "$dir/err" "hdf5-serial libxxhash libpcre2-8 jansson ncursesw. \`make deps\`"
    # What does not need them goes on.
    run env PKG_CONFIG_LIBDIR="$dir" PKG_CONFIG_PATH="$dir" make -n --no-print-directory BUILD="$dir/build" help
    expect 0
    run env PKG_CONFIG_LIBDIR="$dir" PKG_CONFIG_PATH="$dir" make -n --no-print-directory BUILD="$dir/build" deps
    expect 0
}

# Nothing changed: nothing is compiled, linked or written anew.
test_second_make_does_nothing() {
    build=$(dirname "${driftscope#"$root"/}")
    run sh -c "$ds_make -o $build/build_info.h -q all"
    [ "$code" -eq 0 ] || skip "sources changed since the build"
    cp -p "$build/build_info.h" "$dir/before"
    eval "$ds_make $build/build_info.h" >/dev/null
    if cmp -s "$dir/before" "$build/build_info.h"; then
        [ ! "$build/build_info.h" -nt "$dir/before" ]
    fi
}

test_install_and_uninstall() {
    build=$(dirname "${driftscope#"$root"/}")
    run sh -c "$ds_make -o $build/build_info.h -q all"
    [ "$code" -eq 0 ] || skip "sources changed since the build"
    run sh -c "$ds_make -o $build/build_info.h DESTDIR='$dir/root with blank' PREFIX=/opt/ds install"
    expect 0
    at="$dir/root with blank/opt/ds"
    cmp "$driftscope" "$at/bin/driftscope"
    "$at/bin/driftscope" --version >/dev/null
    for file in include/driftscope_kernel.h share/man/man1/driftscope.1 share/bash-completion/completions/driftscope \
        share/zsh/site-functions/_driftscope share/fish/vendor_completions.d/driftscope.fish \
        share/doc/driftscope/examples/plugin/Makefile; do
        [ -s "$at/$file" ]
        [ "$(stat -c %a "$at/$file")" = 644 ]
    done
    # Where a page that was installed links to, something is.
    find "$at/share/doc" -name '*.md' | while read -r page; do
        grep -o ']([^):]*)' "$page" | sed 's/^](//; s/)$//; s/#.*//' | while read -r link; do
            [ -z "$link" ] || [ -e "$(dirname "$page")/$link" ] || { say "$page: no $link"; exit 1; }
        done
    done
    [ -s "$at/share/doc/driftscope/docs/SERVING.md" ]
    # The installed example builds against the installed header, and another folder's with PREFIX and DESTDIR.
    make -s -C "$at/share/doc/driftscope/examples/plugin" OUT="$dir"
    rm "$dir/pairwise.so" "$dir/axpy.so"
    if command -v g++ >/dev/null; then
        make -s -C "$at/share/doc/driftscope/examples/device" CXX=g++ OUT="$dir"
        ds kernels rmsnorm --device sim --plugin "$dir/warp_norm.so"
        expect 0
        has "$dir/out" "rmsnorm/warp-tree"
    fi
    run sh -c "$ds_make -o $build/build_info.h DESTDIR='$dir/stage' PREFIX=/opt/ds install"
    expect 0
    cp -R examples/plugin "$dir/mine"
    run env -u INCLUDE make -C "$dir/mine" OUT="$dir" DESTDIR="$dir/stage" PREFIX=/opt/ds
    expect 0
    has "$dir/out" "$dir/stage/opt/ds/include"
    ds kernels --plugin "$dir/pairwise.so" --plugin "$dir/axpy.so"
    expect 0
    has "$dir/out" "custom/axpy"
    run sh -c "$ds_make DESTDIR='$dir/root with blank' PREFIX=/opt/ds uninstall"
    expect 0
    [ -z "$(find "$dir/root with blank" -type f)" ]
}

# The public header needs nothing of the project, in C and in C++.
test_kernel_header_stands_alone() {
    cp kernels/driftscope_kernel.h "$dir/"
    echo '#include "driftscope_kernel.h"' >"$dir/use.c"
    gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -c -o "$dir/use.o" "$dir/use.c"
    need g++
    g++ -std=c++11 -Wall -Wextra -Werror -x c++ -c -o "$dir/use.o" "$dir/use.c"
}

# must_not WHAT ROOM PATTERN: no source of the room has a line like this; what it would be is told.
must_not() {
    found=$(grep -nE "$3" "$2"/*.[ch] "$2"/*/*.[ch] 2>/dev/null | head -n 5)
    [ -z "$found" ] && return 0
    say "$2 $1:"
    say "$found"
    return 1
}

test_dependencies_point_one_way() {
    must_not "includes a room above it" base '^#include "(kernels|dumps|report|tui|probes|engine|cli|tests)/'
    must_not "knows more than base" kernels '^#include "(dumps|report|tui|probes|engine|cli|tests)/'
    must_not "knows more than base" dumps '^#include "(kernels|report|tui|probes|engine|cli|tests)/'
    must_not "knows more than the record" probes '^#include "(kernels|report|tui|engine|cli|tests)/'
    must_not "knows more than the record" report '^#include "(kernels|tui|probes|engine|cli|tests)/'
    must_not "knows the command line" engine '^#include "(report|tui|cli|tests)/'
    must_not "knows more than records and their words" tui '^#include "(kernels|probes|engine|cli|tests)/'
    must_not "includes a test" cli '^#include "tests/'
    must_not "includes more than the public header" tests/specimens '^#include "(base|kernels/[^d]|dumps|report|probes|engine|cli)'
    for room in base kernels probes report tui engine cli; do
        must_not "calls HDF5 itself" $room '^#include <hdf5'
    done
    for room in base probes dumps report engine; do
        must_not "makes JSON" $room '^#include <jansson'
    done
    # The loader reads what a module of device code says of itself; nothing else there knows JSON.
    [ "$(grep -l '^#include <jansson' kernels/*.[ch] kernels/*/*.[ch])" = kernels/module.c ]
    [ "$(grep -l '^#include <\(n\?curses\|term\)\.h' tui/*.[ch])" = tui/term.c ]
    for room in base kernels probes dumps report tui engine; do
        must_not "prints or exits" $room '(^|[^_a-z0-9])(printf|fprintf|puts|putchar|perror|exit|abort)\('
    done
}

test_program_links_no_blas() {
    need readelf
    run readelf -d "$driftscope"
    expect 0
    grep NEEDED "$dir/out" >"$dir/needed"
    has "$dir/needed" libhdf5
    ! grep -qiE 'blas|mkl|cuda|gomp|iomp' "$dir/needed"
}

run_tests
