-- Holds what an attempt may cost on a budget of the day.
-- tenant, action, day, limit, reserve
insert into paidonce_budget (tenant, action, day, cap, reserved) values (?, ?, ?, ?, ?)
on conflict (tenant, action, day) do update set reserved = reserved + excluded.reserved, cap = excluded.cap
