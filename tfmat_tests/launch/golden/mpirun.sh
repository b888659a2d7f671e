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

@signals.sh

status=75
if [[ $save$stop == nono ]]; then
    mpirun -np 8 --bind-to none /venv/bin/python -P -m tfmat train '--config=my configs/a.py' --backend=horovod &
@wait.sh
if [[ $status == 75 ]]; then
    if [[ no$stop == yesno ]] && put_back "$SLURM_JOB_ID"; then
        echo "tfmat job: saved; job $SLURM_JOB_ID waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch "'/shared/my runs/100%/job.sh'
    fi
fi
exit "$status"
