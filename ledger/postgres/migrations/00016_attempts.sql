-- +goose Up

set local lock_timeout = '2s';

-- The key of attempts begins with the job: it tells rows apart by one comparison of numbers, where the tenant is the same text for
-- all of them and was compared first, at each step down the index. Nobody asks for attempts by their tenant alone.
alter table paidonce.attempt drop constraint attempt_pkey, add primary key (job, id, tenant, part_on);

-- A statement changes all jobs of a batch, and they lie together: a page needs room for each of its rows once more. Updates are
-- HOT then, but for the one that takes a job out of the index of open ones. It counts for pages that are still to come.
alter table paidonce.job set (fillfactor = 50);

-- As before, and with room on the pages of attempts.
-- +goose StatementBegin
create or replace function paidonce.ensure_partitions(ahead interval) returns int
language plpgsql security definer set search_path = pg_catalog as $$
declare
  t record;
  low date; high date; part text; made int := 0; today date := (now() at time zone 'utc')::date;
begin
  perform pg_advisory_xact_lock(hashtext('paidonce.ensure_partitions'));
  for t in select * from (values ('attempt', 'month', 50), ('event', 'month', 100),
      ('response', 'week', 100), ('result', 'week', 100), ('input', 'week', 100), ('chunk', 'week', 100)) v(name, unit, fill) loop
    low := date_trunc(t.unit, today::timestamp)::date;
    while low <= today + ahead loop
      high := (low + ('1 ' || t.unit)::interval)::date;
      part := format('%s_%s', t.name, to_char(low, 'YYYYMMDD'));
      if to_regclass('paidonce.' || part) is null then
        -- Not "create … partition of": that fails when the net holds such rows.
        execute format('create table paidonce.%I (like paidonce.%I including all) with (fillfactor = %s)', part, t.name, t.fill);
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

-- Those that are there.
-- +goose StatementBegin
do $$
declare
  part regclass;
begin
  for part in select inhrelid from pg_inherits where inhparent = 'paidonce.attempt'::regclass loop
    execute format('alter table %s set (fillfactor = 50)', part);
  end loop;
end $$;
-- +goose StatementEnd
