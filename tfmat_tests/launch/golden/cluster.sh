#!/bin/bash
#SBATCH --job-name=tfmat-large
#SBATCH --chdir=/home/ada
#SBATCH --output="/shared/my runs/100%%/job-%j.out"
#SBATCH --open-mode=append
#SBATCH --account=mechanics
#SBATCH --partition=gpu-big
#SBATCH --nodes=2
#SBATCH --ntasks=8
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=16
#SBATCH --gres=gpu:4
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=1-12
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --qos=long

@signals.sh

module load gcc/13
module load openmpi/4.1
ulimit -c 0
export NO_GCE_CHECK=true
export PIP_NO_INDEX=1
export NCCL_SOCKET_IFNAME=ib0
export NOTE='two words'

# A copy of the data set on each node's own disk; without it the shared one is read. Where nodes have one disk together,
# they copy one after another: at the same moment cp of one would fail.
data=/shared/data/voce-1000000-1a2b3c4d disk="$TMPDIR"
copy=$disk/tfmat-$SLURM_JOB_ID
if [[ -d $data && -d $disk ]] &&
    srun --mpi=none --ntasks=$SLURM_NNODES --ntasks-per-node=1 --cpus-per-task=1 bash -c 'mkdir -p "$2" && exec 9>"$2/.lock" && { flock 9 || :; } && cp -r -- "$1" "$2"' \
        copy "$data" "$copy"; then
    export TFMAT_LOCAL_DATA=$copy
    trap 'srun --mpi=none --ntasks=$SLURM_NNODES --ntasks-per-node=1 --cpus-per-task=1 rm -rf -- "$copy"' EXIT
else
    echo "tfmat job: the data set was not copied to $copy; reading $data"
fi

status=75
if [[ $save$stop == nono ]]; then
    srun --mpi=pmix --ntasks=8 --cpus-per-task=16 apptainer exec --nv /shared/tfmat.sif /venv/bin/python -P -m tfmat train '--config=my configs/a.py' --backend=horovod &
@wait.sh
if [[ $status == 75 ]]; then
    if [[ yes$stop == yesno ]] && put_back "$SLURM_JOB_ID"; then
        echo "tfmat job: saved; job $SLURM_JOB_ID waits in the queue again"
    else
        echo "tfmat job: saved; to go on: sbatch "'/shared/my runs/100%/job.sh'
    fi
fi
exit "$status"
