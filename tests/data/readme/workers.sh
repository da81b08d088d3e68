#!/bin/sh
# Two workers behind one address.
export VLLM_BATCH_INVARIANT=1


vllm serve ./model --dtype bfloat16 --seed 1 --quantization fp8 --tensor-parallel-size 2 --port 8001 &
vllm serve ./model --dtype half --seed 2 --quantization fp8 --tensor-parallel-size 2 --port 8002 &
wait
