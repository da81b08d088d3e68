# test_run.sh: `driftscope run` and `show` from outside: names of records, ends before the end, what the texts say. The kernels are
# the project's own, so that nothing depends on the machine.
. tests/cli/lib.sh

small=random:llama,layers=2,hidden=64,heads=4,kv_heads=2,ffn=128,vocab=512
one="--batch 1 --slot first --neighbours copies --threads 1 --chunk 0 --mode prefill"

test_unknown_core_gets_a_suggestion() {
    ds run -m $small --blas-core Haswel --no-record
    expect 2
    has "$dir/err" "did you mean Haswell?"
}

run_tests
