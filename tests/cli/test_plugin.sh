# test_plugin.sh: --plugin: the example, built as its README says; plugins with one fault each, at load and in a run; what a record
# keeps of them.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
short="--batch 1,4 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill --repeat 2 --tokens 1,2,3 -n 2"

# build NAME FLAG...: $dir/NAME.so from tests/plugins/fault.c, against the public header alone.
build() {
    command -v gcc >/dev/null || skip "no gcc here"
    name=$1
    shift
    gcc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -fPIC -shared -Ikernels "$@" -o "$dir/$name.so" tests/plugins/fault.c
}

# refused TEXT: the plugin given last is an error that says so; nothing is printed.
refused() {
    expect 2
    empty "$dir/out"
    has "$dir/err" "driftscope: plugin $1"
}

test_example_is_used_in_a_run() {
    need gcc
    make -s -C examples/plugin CC=gcc OUT="$dir" CFLAGS="-O2 -Werror -pedantic"
    ds kernels matmul --plugin "$dir/pairwise.so"
    expect 0
    has "$dir/out" "matmul/pairwise"
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/pairwise.so" --plugin "$dir/axpy.so" --kernels reference,reference+matmul=pairwise $short \
        -q -o "$dir/a.h5"
    expect 1
    has "$dir/out" "first drift   layer 0 q_proj, matmul/pairwise: origin"
    has "$dir/out" "rounding-order"
    # Its claims hold in a sweep of its own.
    # shellcheck disable=SC2086
    ds run -m $small --plugin "$dir/pairwise.so" --kernels vendor+matmul=pairwise $short -q --no-record
    expect 0
    grep -Eq '^matmul/pairwise +same +same' "$dir/out"
}

test_before_and_after_the_verb() {
    build mine
    ds --plugin "$dir/mine.so" kernels add
    expect 0
    has "$dir/out" "add/mine"
    ds kernels add --plugin="$dir/mine.so"
    expect 0
    has "$dir/out" "add/mine"
    ds kernels add
    hasnt "$dir/out" "add/mine"
    # A name without a slash is a file of this folder, not one of the library path.
    cd "$dir"
    ds kernels add --plugin mine.so
    expect 0
    has "$dir/out" "add/mine"
}

test_what_is_no_plugin() {
    need gcc
    ds kernels --plugin "$dir/absent.so"
    refused "$dir/absent.so: cannot be opened: No such file"
    ds kernels --plugin "$dir"
    refused "$dir: not a file"
    mkfifo "$dir/pipe"
    ds kernels --plugin "$dir/pipe"
    refused "$dir/pipe: not a file"
    : >"$dir/empty.so"
    ds kernels --plugin "$dir/empty.so"
    refused "$dir/empty.so: not a shared object"
    ds kernels --plugin README.md
    refused "README.md: not a shared object"
    echo 'int main(void) { return 0; }' >"$dir/main.c"
    gcc -c -fPIC -o "$dir/main.o" "$dir/main.c"
    ds kernels --plugin "$dir/main.o"
    refused "$dir/main.o: an ELF file, but not a shared object"
    gcc -o "$dir/main" "$dir/main.c"
    ds kernels --plugin "$dir/main"
    refused "$dir/main: cannot be loaded"
    head -c 2000 "$dir/main" >"$dir/cut.so"
    ds kernels --plugin "$dir/cut.so"
    refused "$dir/cut.so: " # how it ends is the loader's choice
    if [ "$(id -u)" -ne 0 ]; then
        cp "$dir/main" "$dir/secret.so"
        chmod 0 "$dir/secret.so"
        ds kernels --plugin "$dir/secret.so"
        refused "$dir/secret.so: cannot be opened: Permission denied"
    fi
}

test_faults_found_when_loading() {
    while read -r flags; do
        read -r text
        # shellcheck disable=SC2086
        build bad $flags
        ds kernels --plugin "$dir/bad.so"
        refused "$dir/bad.so: $text"
    done <<'END'
-DFAULT_NO_SYMBOL
has no function ds_plugin_kernels
-DFAULT_OTHER_ABI
has no kernels for abi 2, which this driftscope has
-DABI=1
kernel 0 is of abi 1, this driftscope has abi 2
-DFAULT_EMPTY
brings no kernel
-DFAULT_TWICE
has two variants of the name add/mine
-DNAME="pinned"
add/pinned is a variant of driftscope already
-DNAME="No"
kernel 'No': name is not one
-DFEATURES=64
kernel add/mine: features 0x40 has bits that mean nothing
-DFEATURES=DS_FEATURE_LSE
kernel add/mine: features 0x8 belong to another op
-DFAULT_UNRESOLVED
cannot be loaded
-DFAULT_CRASH_ON_LOAD
ended by signal 11 (Segmentation fault) while it was being loaded
-DFAULT_CRASH_IN_FUNCTION
ended by signal 6 (Aborted) while it was being loaded
-DFAULT_CRASH_WHEN_ASKED
ended by signal 7 (Bus error) while it was being loaded
-DFAULT_EXIT_ON_LOAD
ended the process with status 0 while it was being loaded
END
}

test_hang_when_loading() {
    build bad -DFAULT_HANG_ON_LOAD
    ds kernels --plugin "$dir/bad.so" --plugin-timeout 1
    refused "$dir/bad.so: was not loaded within 1 s"
    has "$dir/err" "--plugin-timeout gives it longer"
}

test_names_that_clash() {
    build one
    build two
    ds kernels --plugin "$dir/one.so" --plugin "$dir/two.so"
    refused "$dir/two.so: add/mine is a variant of plugin $dir/one.so already"
    ds kernels --plugin "$dir/one.so" --plugin "$dir/one.so"
    refused "$dir/one.so: add/mine is a variant of plugin $dir/one.so already"
}

run_tests
