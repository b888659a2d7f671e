#!/bin/bash
#SBATCH --job-name=tfmat-large
#SBATCH --chdir=/home/ada
#SBATCH --output="/shared/my runs/100%%/job-%j.out"
#SBATCH --open-mode=append
#SBATCH --partition=gpu-big
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --exclusive
#SBATCH --time=1-12
#SBATCH --no-requeue
#SBATCH --signal=B:USR1@120

# A job may be submitted from inside of another one, or of mpirun: their marks are not this job's.
unset "${!OMPI_COMM_WORLD_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_STEP_@}"

signals=0 save=no stop=no process=
hand_on() { ((signals += 1)); [[ -z $process ]] || kill -s "$1" "$process" 2>/dev/null; }
trap 'save=yes; hand_on USR1' USR1 # the time limit is near
trap 'stop=yes; hand_on TERM' TERM # cancelled

status=75
if [[ $save$stop == nono ]]; then
    mpirun -np 8 --bind-to none /venv/bin/python -P -m tfmat train '--config=my configs/a.py' --backend=horovod &
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
    if [[ no$stop == yesno ]] && scontrol requeue "$SLURM_JOB_ID"; then
        echo "tfmat job: saved; job $SLURM_JOB_ID waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch "'/shared/my runs/100%/job.sh'
    fi
fi
exit "$status"
