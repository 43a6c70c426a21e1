-- +goose Up

set local lock_timeout = '2s';

-- Retention. The functions run with the rights of the tables' owner: whoever runs jobs
-- needs no right to delete or to drop. Each call is one small transaction, and calls take turns
-- (the advisory lock), however many workers purge at once. Times are the server's.

-- For stragglers and old keys: it costs inserts next to nothing, and no update touches it.
create index job_part_on on paidonce.job using brin (part_on) with (autosummarize = on);

-- A job that is still needed moves on, with all its children, from a partition that is to
-- be dropped to that of the day.
drop trigger fence_grows on paidonce.job;
create trigger fence_grows before update on paidonce.job for each row
  when (new.fence < old.fence or new.generation < old.generation or new.part_on < old.part_on)
  execute function paidonce.refuse('fence, generation and part_on never shrink');

-- purgeable lists the partitions all of whose days are past their retention, the oldest
-- first: those with bodies by keep_result, those with attempts and events by keep_key.
-- +goose StatementBegin
create function paidonce.purgeable(keep_result interval, keep_key interval)
returns table (parent text, part text, low date, high date)
language sql stable security definer set search_path = pg_catalog set datestyle = 'ISO' as $$
  select p.relname::text, c.relname::text, b.range[1]::date, b.range[2]::date
  from pg_inherits i
  join pg_class p on p.oid = i.inhparent
  join pg_namespace s on s.oid = p.relnamespace and s.nspname = 'paidonce'
  join pg_class c on c.oid = i.inhrelid
  join (values ('result', keep_result), ('response', keep_result), ('input', keep_result),
               ('attempt', keep_key), ('event', keep_key)) v(name, keep) on v.name = p.relname
  cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([0-9-]+)''\) TO \(''([0-9-]+)''\)') b(range)
  where b.range[2]::date <= ((now() - v.keep) at time zone 'utc')::date
  order by 4, 1
$$;
-- +goose StatementEnd

-- purge_move moves up to n jobs of a day that are still needed (open, or changed
-- within keep) to today, and returns how many. Fewer than n: the rest of that day is not needed.
-- No table is locked, and a row that somebody else holds is waited for briefly.
-- +goose StatementBegin
create function paidonce.purge_move(day date, keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = off as $$
declare
  tenants text[]; jobs bigint[]; child text; today date := (now() at time zone 'utc')::date;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  select array_agg(j.tenant), array_agg(j.id) into tenants, jobs from (
    select b.tenant, b.id from paidonce.job b
    where b.part_on = day and (b.state not in ('done', 'failed', 'cancelled') or b.updated_at >= now() - keep)
    order by b.tenant, b.id limit n for update
  ) j;
  if jobs is null or day >= today then
    return 0;
  end if;
  update paidonce.job b set part_on = today from unnest(tenants, jobs) m(tenant, id) where b.tenant = m.tenant and b.id = m.id;
  foreach child in array array['attempt', 'event', 'response', 'result', 'input'] loop
    execute format('update paidonce.%I c set part_on = $1 from unnest($2, $3) m(tenant, id)
                    where c.tenant = m.tenant and c.job = m.id and c.part_on = $4', child) using today, tenants, jobs, day;
  end loop;
  return cardinality(jobs);
end $$;
-- +goose StatementEnd

-- purge_drop drops a partition that is purgeable and returns about how many rows it had;
-- null: there is none of that name. Whoever drops has to lock out everybody from
-- the whole table, and whoever comes meanwhile waits behind: so it gives up soon.
-- +goose StatementBegin
create function paidonce.purge_drop(name text, keep_result interval, keep_key interval) returns bigint
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' as $$
declare
  had bigint;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.ensure_partitions'));
  select greatest(c.reltuples, 0)::bigint into had
  from paidonce.purgeable(keep_result, keep_key) p
  join pg_class c on c.oid = to_regclass(format('paidonce.%I', p.part))
  where p.part = name;
  if found then
    execute format('drop table paidonce.%I', name);
  end if;
  return had;
end $$;
-- +goose StatementEnd

-- purge_net deletes up to n rows from the net of a table of children that are past their
-- retention and belong to no job that is still needed, and returns how many.
-- +goose StatementBegin
create function paidonce.purge_net(child text, keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = on as $$
declare
  gone int;
begin
  if child not in ('attempt', 'event', 'response', 'result', 'input') then
    raise exception 'no table of children: %', child;
  end if;
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  execute format('delete from paidonce.%I where ctid = any (array(
      select c.ctid from paidonce.%1$I c left join paidonce.job j on j.tenant = c.tenant and j.id = c.job
      where c.part_on < ((now() - $1) at time zone ''utc'')::date
        and (j.id is null or j.state in (''done'', ''failed'', ''cancelled'') and j.updated_at < now() - $1)
      limit $2 for update of c skip locked))', child || '_default') using keep, n;
  get diagnostics gone = row_count;
  return gone;
end $$;
-- +goose StatementEnd

-- purge_keys deletes up to n jobs that ended and have not changed for keep, and returns how
-- many. What is left of their children goes with its partition.
-- +goose StatementBegin
create function paidonce.purge_keys(keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = off as $$
declare
  gone int;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  delete from paidonce.job where ctid = any (array(
    select b.ctid from paidonce.job b
    where b.part_on < ((now() - keep) at time zone 'utc')::date
      and b.state in ('done', 'failed', 'cancelled') and b.updated_at < now() - keep
    limit n for update skip locked));
  get diagnostics gone = row_count;
  return gone;
end $$;
-- +goose StatementEnd
