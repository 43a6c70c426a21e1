-- A worker's row, or the next epoch of one that is there.
-- id, lease until, host, pid, version, config, now
insert into paidonce_worker (id, epoch, lease_until, host, pid, version, config, joined_at) values (?, 1, ?, ?, ?, ?, ?, ?)
on conflict (id) do update set epoch = epoch + 1, lease_until = excluded.lease_until, closed_at = null, host = excluded.host,
  pid = excluded.pid, version = excluded.version, config = excluded.config, joined_at = excluded.joined_at
returning epoch
