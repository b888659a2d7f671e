#!/bin/bash
#SBATCH --job-name=tfmat-smoke
#SBATCH --output=/shared/runs/smoke/job-%j.out
#SBATCH --open-mode=append
#SBATCH --ntasks=1
#SBATCH --requeue

@signals.sh

status=75
if [[ $save$stop == nono ]]; then
    /venv/bin/python -P -m tfmat train '--config=my configs/a.py' &
@wait.sh
if [[ $status == 75 ]]; then
    if [[ yes$stop == yesno ]] && put_back "$SLURM_JOB_ID"; then
        echo "tfmat job: saved; job $SLURM_JOB_ID waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch "/shared/runs/smoke/job.sh
    fi
fi
exit "$status"
