#!/bin/bash
# Before: export RAY_AUTH_MODE=token RAY_AUTH_TOKEN=..., if the cluster asks for it. All machines have bertkit[ray] and
# the disk $SHARED. Whatever is killed: submit it again, and finished blocks and runs are kept.
set -euo pipefail
: "${HEAD:=http://127.0.0.1:8265}" "${SHARED:=/shared}"

# A table of texts, in as many tasks as the cluster has room for.
ray job submit --address "$HEAD" -- \
  bertkit predict "$SHARED/texts" --model "$SHARED/run" --out "$SHARED/labels" --engine ray

# Five seeds of a fine-tuning, each a task with two threads, and before them a search in rounds of four trials.
ray job submit --address "$HEAD" --runtime-env-json '{"env_vars": {"OMP_NUM_THREADS": "2"}}' -- \
  bertkit finetune csv --data "$SHARED/reviews.csv" --model "$SHARED/start" --out "$SHARED/run" \
  --seeds 5 --search 20 --workers 4 --engine ray
