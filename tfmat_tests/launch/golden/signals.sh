# A job may be submitted from inside of another one, or of mpirun: their marks are not this job's.
unset "${!OMPI_COMM_WORLD_@}" "${!PMIX_@}" "${!PMI_@}" "${!SLURM_STEP_@}"

signals=0 save=no stop=no process=
hand_on() { ((signals += 1)); [[ -z $process ]] || kill -s "$1" "$process" 2>/dev/null; }
trap 'save=yes; hand_on USR1' USR1 # the time limit is near
trap 'stop=yes; hand_on TERM' TERM # cancelled
# Putting a job back ends it, and scontrol with it: it may be gone before it can say that it was done.
put_back() { (trap '' TERM && exec scontrol requeue "$1"); }
