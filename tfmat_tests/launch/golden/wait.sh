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
