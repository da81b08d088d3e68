# test_memory.sh: an allocation that fails ends in the same answer or in exit code 2 with a message, never in another answer: a few
# numbers of each job (tests/tools/alloc_sweep tries all of them).
. tests/cli/lib.sh

test_failed_allocations() {
    build=$(dirname "${DRIFTSCOPE:-build/driftscope}")
    [ -x "$build/tests/tools/alloc_fail" ] || skip "build/tests/tools/alloc_fail is not built"
    command -v python3 >/dev/null || skip "no python3"
    python3 tests/tools/alloc_sweep --samples 4 "$build/tests/tools/alloc_fail" "$build/specimens/specimens.so" \
        show-site diff kernels lock verify order check run@child explain explain@child bisect@child check@child order@child \
        >"$dir/out" 2>&1 || { cat "$dir/out"; false; }
    has "$dir/out" " 0 wrong"
}

# Numbers at which an answer once had fewer comparisons, or a tree without words.
test_that_nothing_is_left_out() {
    build=$(dirname "${DRIFTSCOPE:-build/driftscope}")
    [ -x "$build/tests/tools/alloc_fail" ] || skip "build/tests/tools/alloc_fail is not built"
    command -v python3 >/dev/null || skip "no python3"
    python3 tests/tools/alloc_sweep --from 140 --samples 30 "$build/tests/tools/alloc_fail" "$build/specimens/specimens.so" order \
        >"$dir/out" 2>&1 || { cat "$dir/out"; false; }
    has "$dir/out" " 0 wrong"
}

run_tests
