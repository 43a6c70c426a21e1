-- +goose Up

set local lock_timeout = '2s';

-- What statements need seldom. A part of a statement is made ready at each execution, for each partition that it might touch, whether it finds a row or
-- not; what a function does is planned once for each connection, and costs nothing where it is not called. Each runs under the lock on its
-- job's row, in the statement's transaction, and sees what is committed by then and what the statement did before it. Without sequential scans, as on the
-- ledger's connections: behind a pooler these plans are the only ones that stay.

-- The first captured answer of a call wins: its other attempts that are open are closed as unknown. Returns how many.
-- +goose StatementBegin
create function paidonce.close_others(of_tenant text, of_job bigint, of_part date, of_generation int, of_call text, of_input text, answered uuid, at timestamptz)
returns int language plpgsql set enable_seqscan = off as $$
declare
  n int;
begin
  update paidonce.attempt o set state = 'unknown', ended_at = at
  where o.tenant = of_tenant and o.job = of_job and o.part_on = of_part and o.generation = of_generation
    and o.call_name = of_call and o.input_key = of_input and o.state = 'sent' and o.id <> answered;
  get diagnostics n = row_count;
  return n;
end $$;
-- +goose StatementEnd

-- Until when the job's open attempts may land, all but one that ends.
-- +goose StatementBegin
create function paidonce.open_until(of_tenant text, of_job bigint, of_part date, ending uuid)
returns timestamptz language plpgsql set enable_seqscan = off as $$
begin
  return (select max(o.sent_at + o.timeout) from paidonce.attempt o
    where o.tenant = of_tenant and o.job = of_job and o.part_on = of_part and o.state = 'sent' and o.id <> ending);
end $$;
-- +goose StatementEnd

-- Answers of a generation that its result does not use were paid for all the same. Returns how many there are that were not known as such.
-- +goose StatementBegin
create function paidonce.mark_surplus(of_tenant text, of_job bigint, of_part date, of_generation int, used uuid[])
returns int language plpgsql set enable_seqscan = off as $$
declare
  n int;
begin
  update paidonce.attempt a set surplus = true
  where a.tenant = of_tenant and a.job = of_job and a.part_on = of_part and a.generation = of_generation
    and a.state = 'received' and not a.surplus and a.id <> all (used);
  get diagnostics n = row_count;
  return n;
end $$;
-- +goose StatementEnd

-- What an attempt under budgets of a day frees and costs, on the day on which it was sent.
create type paidonce.spending as (tenant text, action text, day date, budgets smallint, freed bigint, booked bigint);

-- Books what attempts free and cost, in the order of the budgets' keys. Returns on how many budgets.
-- +goose StatementBegin
create function paidonce.spend(list paidonce.spending[])
returns int language plpgsql set enable_seqscan = off as $$
declare
  n int;
begin
  with spent as materialized (
    select l.tenant, v.action, l.day, sum(l.freed)::bigint as freed, sum(l.booked)::bigint as booked
    from unnest(list) l cross join lateral (values (1, ''), (2, l.action)) v(bit, action)
    where l.budgets & v.bit > 0 group by 1, 2, 3
  ), locks as materialized (
    select u.day from spent s join paidonce.budget u on u.tenant = s.tenant and u.action = s.action and u.day = s.day
    order by u.tenant, u.action, u.day for update of u
  )
  update paidonce.budget u set reserved = u.reserved - s.freed, cost = u.cost + s.booked
  from spent s cross join (select count(*) as n from locks) l
  where l.n > 0 and u.tenant = s.tenant and u.action = s.action and u.day = s.day;
  get diagnostics n = row_count;
  return n;
end $$;
-- +goose StatementEnd
