-- A listing, newest first, for people: of all tenants unless one is named. What is asked for replaces the comments
-- (list.go): which index serves it depends on that.
-- $1 tenant, $2 action ('' each: any), $3 at most
select tenant, id, key, action, state, generation, runs, replays, fence, open_calls, receives, carrier, owner, owner_epoch,
       cancel, input_hash, input_kept, cost, reserved, budget, error_class, error_text, origin, created_at, updated_at, next_at, done_at,
       attempts - coalesce(uncounted, 0) as calls, coalesce(max_calls, 0) as max_calls, coalesce(lifetime, '0') as lifetime,
       coalesce(began_at, created_at) as began_at
from paidonce.job
where $1::text is not null and $2::text is not null /* and */
order by id /* order */ desc limit $3
