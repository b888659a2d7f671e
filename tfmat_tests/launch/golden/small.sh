#!/bin/bash
#SBATCH --job-name=tfmat-smoke
#SBATCH --output=/shared/runs/smoke/job-%j.out
#SBATCH --open-mode=append
#SBATCH --ntasks=1
#SBATCH --requeue

# A job may be submitted from inside of another one, or of mpirun: their marks are not this job's.
unset "${!OMPI_COMM_WORLD_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_STEP_@}"

signals=0 save=no stop=no process=
hand_on() { ((signals += 1)); [[ -z $process ]] || kill -s "$1" "$process" 2>/dev/null; }
trap 'save=yes; hand_on USR1' USR1 # the time limit is near
trap 'stop=yes; hand_on TERM' TERM # cancelled

status=75
if [[ $save$stop == nono ]]; then
    /venv/bin/python -P -m tfmat train '--config=my configs/a.py' &
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
        echo "tfmat job: saved; to go on: sbatch "/shared/runs/smoke/job.sh
    fi
fi
exit "$status"
