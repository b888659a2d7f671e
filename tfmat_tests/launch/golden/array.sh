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

# A job may be submitted from inside of another one, or of mpirun: their marks are not this job's.
unset "${!OMPI_COMM_WORLD_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_STEP_@}"

signals=0 save=no stop=no process=
hand_on() { ((signals += 1)); [[ -z $process ]] || kill -s "$1" "$process" 2>/dev/null; }
trap 'save=yes; hand_on USR1' USR1 # the time limit is near
trap 'stop=yes; hand_on TERM' TERM # cancelled

status=75
if [[ $save$stop == nono ]]; then
    tfmat tune --worker="$SLURM_ARRAY_TASK_ID" 'it'"'"'s' &
    process=$!
    [[ $save == no ]] || kill -s USR1 "$process"
    # A signal ends `wait` early.
    while
        before=$signals
        wait "$process"
        status=$?
        ((signals != before))
    do :; done
fi
# Asked to save before it could take signals, a process ends by the signal itself: nothing new is lost.
[[ $save == yes && $status == 138 ]] && status=75
if [[ $status == 75 ]]; then
    if [[ yes$stop == yesno ]] && scontrol requeue "$SLURM_JOB_ID"; then
        echo "tfmat job: saved; job $SLURM_JOB_ID waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch --array=$SLURM_ARRAY_TASK_ID "/shared/runs/smoke/job.sh
    fi
fi
if [[ ($status == 4 || $status -gt 128) && yes$stop == yesno && ${SLURM_RESTART_COUNT:-0} -lt 10 ]]; then
    if scontrol requeue "$SLURM_JOB_ID"; then
        echo "tfmat job: lost (status $status); element $SLURM_ARRAY_TASK_ID waits in the queue again"
    else
        echo "tfmat job: lost (status $status); to go on: sbatch --array=$SLURM_ARRAY_TASK_ID "/shared/runs/smoke/job.sh
    fi
fi
exit "$status"
