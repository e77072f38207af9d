#!/usr/bin/env bash
# A SLURM cluster of two nodes on this machine, for a test: everything it writes is in one folder.
#   tests/slurm/cluster.sh start DIR    munged, slurmctld, two slurmd; then: export SLURM_CONF=DIR/slurm.conf
#   tests/slurm/cluster.sh stop DIR
# Debian's packages slurm-wlm and munge, and root, are needed.
set -euo pipefail

# configuration DIR : slurm.conf of a cluster whose nodes are processes of this machine
configuration() {
  cat <<CONF
ClusterName=capsnmt
SlurmctldHost=$(hostname -s)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
# Busy cores may answer after many seconds: with less patience SLURM gives jobs up or starts them again.
# A requeued job waits until its credential has expired, by default two minutes.
AuthInfo=socket=$1/munge/socket,cred_expire=30
MessageTimeout=60
BatchStartTimeout=60
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
ReturnToService=2
JobRequeue=1
KillWait=30
SlurmctldPort=17817
SlurmctldPidFile=$1/slurmctld.pid
SlurmctldLogFile=$1/slurmctld.log
StateSaveLocation=$1/state
SlurmdPidFile=$1/slurmd.%n.pid
SlurmdLogFile=$1/slurmd.%n.log
SlurmdSpoolDir=$1/spool.%n
# the names are addresses: processes of a job must find one another by them
NodeName=127.0.0.[1-2] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[17818-17819] CPUs=4
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
}

start() {
  local dir=$1 node
  mkdir -p "$dir"/{munge,state,spool.127.0.0.1,spool.127.0.0.2}
  configuration "$dir" >"$dir/slurm.conf"
  export SLURM_CONF=$dir/slurm.conf
  head -c 1024 /dev/urandom >"$dir/munge/key"
  chmod 700 "$dir/munge/key"
  chown -R munge "$dir/munge"
  chmod 711 "$dir/munge"
  chmod 400 "$dir/munge/key"
  runuser -u munge -- munged --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
  slurmctld
  for node in 127.0.0.1 127.0.0.2; do
    slurmd -N "$node"
  done
  for _ in $(seq 60); do
    if [ "$(sinfo --noheader --states idle --format %D 2>/dev/null)" = 2 ]; then
      return 0
    fi
    sleep 0.5
  done
  sinfo --Node --long >&2 || true
  tail -n 20 "$dir"/slurmctld.log "$dir"/slurmd.*.log >&2
  echo "error: the SLURM cluster in $dir did not come up: see its logs above" >&2
  return 1
}

stop() {
  local pid_file pids=()
  for pid_file in "$1"/slurmd.127.0.0.1.pid "$1"/slurmd.127.0.0.2.pid "$1"/slurmctld.pid "$1"/munge/pid; do
    if [ -f "$pid_file" ]; then
      pids+=("$(cat "$pid_file")")
      kill "${pids[-1]}" 2>/dev/null || true
    fi
  done
  # slurmctld saves its state in the end: who removes the folder would find files that were not there
  for _ in $(seq 120); do
    kill -0 "${pids[@]}" 2>/dev/null || return 0
    sleep 0.5
  done
}

case "${1-}:${2-}" in
  start:?*) start "$2" ;;
  stop:?*) stop "$2" ;;
  *)
    sed -n 's/^# \{0,1\}//p' "$0" | sed -n '2,5p'
    exit 2
    ;;
esac
