#include "tests/cuda/cuda_runtime.h"
