# test_recorded_model.sh: a model with seeded weights is its name: verbs that are given a record or a lock of one need no -m. A
# file that a record names is never opened, and a name of someone else asks for no more than is listed
# (tests/unit/cli/test_recorded_model.c).
. tests/cli/lib.sh

model=random:llama,layers=2,hidden=32,heads=2,ffn=48,vocab=64,seed=2
ask="-m $model --tokens 5,9,1,44,23 -n 3 --threads 1"
export DRIFTSCOPE_CACHE=/nonexistent # the default model is nowhere

# taken WHAT: the last command said that it took the model from there.
taken() { has "$dir/err" "driftscope: model $model, as in the $1; -m names another"; }

test_sweeps() {
    ds run $ask --batch 1,8 --kernels vendor+matmul=split-k -o "$dir/a.h5"
    expect 1
    ds explain "$dir/a.h5"
    expect 0
    taken record
    cp "$dir/out" "$dir/without"
    ds explain -m $model "$dir/a.h5"
    expect 0
    empty "$dir/err"
    same_files "$dir/without" "$dir/out"
    ds explain -q "$dir/a.h5"
    empty "$dir/err"
    ds explain -m random:llama,layers=2,hidden=32,heads=2,ffn=48,vocab=64,seed=3 "$dir/a.h5"
    expect 2
    has "$dir/err" "is not the record's model"
    ds run --resume "$dir/a.h5"
    expect 1
    taken record
    ds report "$dir/a.h5" -o "$dir/a.html"
    expect 0
    empty "$dir/err"
}

test_serving() {
    ds storm $ask --requests 4 --compare split -o "$dir/s.h5"
    [ "$code" -le 1 ]
    ds replay "$dir/s.h5"
    [ "$code" -le 1 ]
    taken record
    ds replay "$dir/s.h5" --request 1 --alone -m $model
    hasnt "$dir/err" "as in the record"
    ds onpolicy $ask --requests 2 --compare split -o "$dir/p.h5"
    [ "$code" -le 1 ]
    ds risk "$dir/p.h5"
    [ "$code" -le 1 ]
    hasnt "$dir/err" "model"
}

test_locks() {
    ds lock $ask -o "$dir/a.lock"
    expect 0
    ds verify "$dir/a.lock"
    expect 0
    taken lock
    ds lock --update -o "$dir/a.lock"
    expect 0
    taken lock
    last=$(tail -n 1 "$dir/out")
    [ "${last%unchanged}" != "$last" ]
    # What it names is held against its own digest, and built only where that costs little.
    sed 's/^model name .*/&9/' "$dir/a.lock" >"$dir/other.lock"
    ds verify "$dir/other.lock"
    expect 2
    has "$dir/err" "the lock is of another model"
    sed 's/^model name .*/model name random:llama,layers=9999,hidden=1048576/' "$dir/a.lock" >"$dir/huge.lock"
    ds verify "$dir/huge.lock"
    expect 2
    has "$dir/err" "the lock's model, random:llama,layers=9999,hidden=1048576, is not built from its name alone: "
    has "$dir/err" "hint: if you trust the lock, name its model: -m"
    sed 's/^model name .*/model name \/dev\/zero/' "$dir/a.lock" >"$dir/file.lock"
    ds verify "$dir/file.lock"
    expect 2
    has "$dir/err" "smollm2 is not in the cache"
}

run_tests
