-- A row for a worker process, or the next epoch of an existing one.
-- $1 id, $2 ttl, $3 host, $4 pid, $5 version, $6 config
insert into paidonce.worker as w (id, epoch, lease_until, host, pid, version, config)
values ($1, 1, clock_timestamp() + $2::interval, $3, $4, $5, $6)
on conflict (id) do update set
  epoch = w.epoch + 1, lease_until = clock_timestamp() + $2, closed_at = null,
  host = excluded.host, pid = excluded.pid, version = excluded.version, config = excluded.config,
  joined_at = clock_timestamp()
returning epoch
