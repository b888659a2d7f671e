#!/bin/bash
#SBATCH --job-name=tfmat-smoke
#SBATCH --output=/shared/runs/smoke/job-%A_%a.out
#SBATCH --open-mode=append
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --time=3
#SBATCH --array=0-3
#SBATCH --requeue
#SBATCH --signal=B:USR1@45

@signals.sh

status=75
if [[ $save$stop == nono ]]; then
    tfmat tune --worker="$SLURM_ARRAY_TASK_ID" 'it'"'"'s' &
@wait.sh
if [[ $status == 75 ]]; then
    if [[ yes$stop == yesno ]] && put_back "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; then
        echo "tfmat job: saved; job ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch --array=$SLURM_ARRAY_TASK_ID "/shared/runs/smoke/job.sh
    fi
fi
if [[ ($status == 4 || $status -gt 128) && yes$stop == yesno && ${SLURM_RESTART_COUNT:-0} -lt 10 ]]; then
    if put_back "${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"; then
        echo "tfmat job: lost (status $status); element $SLURM_ARRAY_TASK_ID waits in the queue again"
    else
        echo "tfmat job: lost (status $status); to go on: sbatch --array=$SLURM_ARRAY_TASK_ID "/shared/runs/smoke/job.sh
    fi
fi
exit "$status"
