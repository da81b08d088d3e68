# test_blas.sh: --blas: a library of the user's as matmul/cblas; faults of such a library; what a record keeps of it. The library is the
# tests' own (tests/plugins/cblas.c); tests/unit/kernels/test_cblas.c knows BLIS and MKL.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
short="--batch 1,4 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --repeat 2 --tokens 1,2,3 -n 2"

# build NAME FLAG...: $dir/NAME.so.
build() {
    command -v gcc >/dev/null || skip "no gcc here"
    name=$1
    shift
    gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -fPIC -shared "$@" -o "$dir/$name.so" tests/plugins/cblas.c
}

# refused TEXT: the library given last is an error that says so; nothing is printed.
refused() {
    expect 2
    empty "$dir/out"
    has "$dir/err" "driftscope: blas library $1"
}

test_without_a_library() {
    ds kernels matmul
    expect 0
    has "$dir/out" "no: no library was given (--blas FILE.so)"
    ds run -m $small --kernels pinned+matmul=cblas --no-record
    expect 2
    has "$dir/err" "no library was given for matmul/cblas"
    has "$dir/err" "hint: name one with --blas FILE.so"
}

test_library_is_named() {
    build mine
    ds kernels matmul --blas "$dir/mine.so"
    expect 0
    has "$dir/out" "matmul/cblas uses mine.so: unknown"
    ds --blas="$dir/mine.so" kernels matmul --json
    expect 0
    has "$dir/out" '"cblas": "mine.so: unknown"'
    # A name without a slash is a file of this folder, not one of the library path.
    cd "$dir"
    ds kernels --blas mine.so
    expect 0
}

test_run_with_a_library() {
    build mine
    # Its order does not depend on the call: a sweep of its own finds nothing.
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned+matmul=cblas --blas "$dir/mine.so" $short -q --no-record
    expect 0
    grep -Eq '^matmul/cblas +same +same' "$dir/out"
    # Against another one it is the first to differ, by the order alone.
    # shellcheck disable=SC2086
    ds run -m $small --kernels reference,reference+matmul=cblas --blas "$dir/mine.so" $short -q -o "$dir/a.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 q_proj, matmul/cblas: origin"
    has "$dir/out" "rounding-order"
    ds diff "$dir/a.h5" "$dir/a.h5"
    expect 0
}

test_weights_packed_ahead() {
    build mine
    ds kernels matmul --blas "$dir/mine.so"
    expect 0
    has "$dir/out" "mine.so cannot pack weights ahead"
    build wrong -DPACKS_WRONG
    ds kernels matmul --blas "$dir/wrong.so"
    expect 0
    has "$dir/out" "wrong.so multiplies two small matrices wrongly with packed weights"
    build packs -DPACKS
    # Both figures beside ours; both trees, and both are the library's.
    ds bench matmul --shape n=40,k=64 --rows 3 --threads 1 --seconds 0 --blas "$dir/packs.so"
    expect 0
    has "$dir/out" "matmul/cblas "
    grep -Eq 'matmul/cblas-packed .* packed ahead in' "$dir/out"
    ds check matmul/cblas-packed --shape n=40,k=64 --blas "$dir/packs.so"
    expect 0
    ds order matmul/cblas-packed --shape n=40,k=64 --blas "$dir/packs.so"
    expect 0
    has "$dir/out" "descending"
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned+matmul=cblas,pinned+matmul=cblas-packed --blas "$dir/packs.so" $short -q --no-record
    expect 0
}

test_resume_wants_the_same_library() {
    build mine
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned+matmul=cblas --blas "$dir/mine.so" $short -q -o "$dir/a.h5"
    expect 0
    ds run -m $small --resume "$dir/a.h5"
    expect 2
    has "$dir/err" "cblas was mine.so "
    has "$dir/err" "hint: give the library that it was made with: --blas FILE.so"
    gcc -shared -fPIC -O0 -o "$dir/mine2.so" tests/plugins/cblas.c
    ds run -m $small --resume "$dir/a.h5" --blas "$dir/mine2.so"
    expect 2
    has "$dir/err" ", is mine2.so "
    ds run -m $small --resume "$dir/a.h5" --blas "$dir/mine.so" -q
    expect 0
}

test_what_is_no_library() {
    ds kernels --blas "$dir/absent.so"
    refused "$dir/absent.so: cannot be opened: No such file"
    ds kernels --blas "$dir"
    refused "$dir: not a file"
    ds kernels --blas README.md
    refused "README.md: not a shared object"
    ds kernels --blas ''
    expect 2
}

test_faults_found_when_loading() {
    while read -r flag; do
        read -r text
        build bad "$flag"
        ds kernels --blas "$dir/bad.so"
        refused "$dir/bad.so: $text"
    done <<'END'
-DNO_SGEMM
has no function cblas_sgemm
-DWRONG
its cblas_sgemm gives a wrong product of two small matrices
-DCRASH
ended by signal 6 (Aborted) while it was being loaded
-DCRASHES_IN_CALL
ended by signal 6 (Aborted) while it was being loaded
-DENDS
ended the process with status 3 while it was being loaded
END
    build bad -DHANGS
    ds kernels --blas "$dir/bad.so" --plugin-timeout 1
    refused "$dir/bad.so: was not loaded within 1 s"
    has "$dir/err" "--plugin-timeout gives it longer"
}

test_floating_point_mode() {
    build loads -DFLUSHES
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned+matmul=cblas --blas "$dir/loads.so" $short -o "$dir/a.h5"
    expect 0
    has "$dir/err" "subnormals are flushed to zero; it is put back"
    build calls -DLEAVES_FLUSH
    # shellcheck disable=SC2086
    ds run -m $small --kernels pinned+matmul=cblas --blas "$dir/calls.so" $short -q --no-record
    expect 2
    has "$dir/err" "layer 0 q_proj: matmul/cblas: cblas_sgemm left MXCSR at 9f80, it was 1f80"
}

run_tests
