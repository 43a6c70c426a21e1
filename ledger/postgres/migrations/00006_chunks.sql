-- +goose Up

set local lock_timeout = '2s';

-- Bodies that are too large for their row lie here. Their row holds a reference: a mark, their size, and
-- the SHA-256 by which the chunks are found.
create table paidonce.chunk (
  tenant  text not null,
  job     bigint not null,
  hash    bytea not null check (octet_length(hash) = 32), -- SHA-256 of the whole body
  n       int not null,                  -- of the chunk, from 0
  part_on date not null,
  body    bytea compression lz4 not null,
  primary key (tenant, job, hash, n, part_on)
) partition by range (part_on);

create table paidonce.chunk_default partition of paidonce.chunk default;

-- The functions that look after partitions, with one table more.

-- +goose StatementBegin
create or replace function paidonce.ensure_partitions(ahead interval) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
  t record;
  low date; high date; part text; made int := 0; today date := (now() at time zone 'utc')::date;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.ensure_partitions'));
  for t in select * from (values ('attempt', 'month'), ('event', 'month'),
      ('response', 'week'), ('result', 'week'), ('input', 'week'), ('chunk', 'week')) v(name, unit) loop
    low := date_trunc(t.unit, today::timestamp)::date;
    while low <= today + ahead loop
      high := (low + ('1 ' || t.unit)::interval)::date;
      part := format('%s_%s', t.name, to_char(low, 'YYYYMMDD'));
      if to_regclass('paidonce.' || part) is null then
        -- Not "create … partition of": that fails when the net holds such rows.
        execute format('create table paidonce.%I (like paidonce.%I including all)', part, t.name);
        execute format('with net as (delete from paidonce.%I where part_on >= %L and part_on < %L returning *)
                        insert into paidonce.%I select * from net', t.name || '_default', low, high, part);
        execute format('alter table paidonce.%I attach partition paidonce.%I for values from (%L) to (%L)',
                       t.name, part, low, high);
        made := made + 1;
      end if;
      low := high;
    end loop;
  end loop;
  return made;
end $$;
-- +goose StatementEnd

select paidonce.ensure_partitions('45 days');

-- Chunks come last: a row must not outlive what it refers to.
-- +goose StatementBegin
create or replace function paidonce.purgeable(keep_result interval, keep_key interval)
returns table (parent text, part text, low date, high date)
language sql stable security definer set search_path = pg_catalog set datestyle = 'ISO' as $$
  select p.relname::text, c.relname::text, b.range[1]::date, b.range[2]::date
  from pg_inherits i
  join pg_class p on p.oid = i.inhparent
  join pg_namespace s on s.oid = p.relnamespace and s.nspname = 'paidonce'
  join pg_class c on c.oid = i.inhrelid
  join (values ('result', keep_result), ('response', keep_result), ('input', keep_result), ('chunk', keep_result),
               ('attempt', keep_key), ('event', keep_key)) v(name, keep) on v.name = p.relname
  cross join lateral regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([0-9-]+)''\) TO \(''([0-9-]+)''\)') b(range)
  where b.range[2]::date <= ((now() - v.keep) at time zone 'utc')::date
  order by b.range[2]::date, p.relname = 'chunk', p.relname
$$;
-- +goose StatementEnd

-- Looking for what has to move reads a whole day: once, not once for each step as before.
drop function paidonce.purge_move(date, interval, int);

-- purge_needed lists jobs of a day that are still needed (open, or changed within keep), at most
-- so many, in batches of n. It reads the whole day, and locks nothing.
-- +goose StatementBegin
create function paidonce.purge_needed(day date, keep interval, most int, n int)
returns table (tenants text[], jobs bigint[])
language sql stable security definer
set search_path = pg_catalog set enable_seqscan = off as $$
  select array_agg(m.tenant), array_agg(m.id)
  from (select j.tenant, j.id, (row_number() over (order by j.tenant, j.id) - 1) / n as batch from (
    select b.tenant, b.id from paidonce.job b
    where b.part_on = day and (b.state not in ('done', 'failed', 'cancelled') or b.updated_at >= now() - keep)
    limit most) j) m
  group by m.batch order by m.batch
$$;
-- +goose StatementEnd

-- purge_move moves those of the jobs that are still of that day to today, with their children, and
-- returns how many. No table is locked, and a row that somebody else holds is waited for briefly.
-- +goose StatementBegin
create function paidonce.purge_move(day date, tenants text[], jobs bigint[]) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = off as $$
declare
  child text; today date := (now() at time zone 'utc')::date;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.purge'));
  select array_agg(j.tenant), array_agg(j.id) into tenants, jobs from (
    select b.tenant, b.id from paidonce.job b join unnest(tenants, jobs) m(tenant, id) on b.tenant = m.tenant and b.id = m.id
    where b.part_on = day order by b.tenant, b.id for update of b
  ) j;
  if jobs is null or day >= today then
    return 0;
  end if;
  update paidonce.job b set part_on = today from unnest(tenants, jobs) m(tenant, id) where b.tenant = m.tenant and b.id = m.id;
  foreach child in array array['attempt', 'event', 'response', 'result', 'input', 'chunk'] loop
    execute format('update paidonce.%I c set part_on = $1 from unnest($2, $3) m(tenant, id)
                    where c.tenant = m.tenant and c.job = m.id and c.part_on = $4', child) using today, tenants, jobs, day;
  end loop;
  return cardinality(jobs);
end $$;
-- +goose StatementEnd

-- +goose StatementBegin
create or replace function paidonce.purge_net(child text, keep interval, n int) returns int
language plpgsql security definer
set search_path = pg_catalog set lock_timeout = '50ms' set enable_seqscan = on as $$
declare
  gone int;
begin
  if child not in ('attempt', 'event', 'response', 'result', 'input', 'chunk') then
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
