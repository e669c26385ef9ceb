# load.sh PROCESSES: mdb_load of the same records by so many at a time
for i in $(seq "$1"); do
    mdb_load -f dump data & all="$all $!"
done
for pid in $all; do
    wait "$pid" || exit
done
