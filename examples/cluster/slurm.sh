#!/bin/bash
#SBATCH --job-name=label-texts
#SBATCH --array=0-15
#SBATCH --cpus-per-task=4
#SBATCH --mem=4G
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --output=label-%A-%a.log
# Each task takes one shard of the blocks; a task that is requeued goes on after its last finished block. Shards count
# from 1, this array from 0. Afterwards: bertkit merge "$SHARED/labels" labels.parquet
set -euo pipefail
: "${SHARED:=/shared}"

srun bertkit predict "$SHARED/texts" --model "$SHARED/run" --out "$SHARED/labels" \
  --shard "$((SLURM_ARRAY_TASK_ID + 1))/$SLURM_ARRAY_TASK_COUNT"
