-- A listing, newest first, for people: of all tenants unless one is named.
-- $1 tenant, $2 action, $3 state ('' each: any), $4 at most
select tenant, id, key, action, state, generation, runs, replays, fence, open_calls, receives, carrier, owner, owner_epoch,
       cancel, input_hash, input_kept, cost, reserved, budget, error_class, error_text, origin, created_at, updated_at, next_at, done_at
from paidonce.job
where ($1 = '' or tenant = $1) and ($2 = '' or action = $2) and ($3 = '' or state = $3)
order by created_at desc, id desc limit $4
