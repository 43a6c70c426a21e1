-- The same for all tenants and actions: the newest of each action, and of these the newest. There are few actions, and no
-- index by id alone is needed. Arguments as there.
with recursive of (action) as (
  (select action from paidonce.job order by action limit 1)
  union all
  select (select j.action from paidonce.job j where j.action > of.action order by j.action limit 1) from of where of.action is not null
)
select j.* from of cross join lateral (
  select tenant, id, key, action, state, generation, runs, replays, fence, open_calls, receives, carrier, owner, owner_epoch,
         cancel, input_hash, input_kept, cost, reserved, budget, error_class, error_text, origin, created_at, updated_at, next_at, done_at,
         attempts - coalesce(uncounted, 0) as calls, coalesce(max_calls, 0) as max_calls, coalesce(lifetime, '0') as lifetime,
         coalesce(began_at, created_at) as began_at
  from paidonce.job b
  where b.action = of.action and $1::text is not null and $2::text is not null /* and */
  order by b.id desc limit $3
) j
order by j.id desc limit $3
