-- tenant, day, action, cause, count, saved, unpriced
insert into paidonce_dup_count (tenant, day, action, cause, n, saved, unpriced) values (?, ?, ?, ?, ?, ?, ?)
on conflict (tenant, day, action, cause) do update set n = n + excluded.n, saved = saved + excluded.saved, unpriced = unpriced + excluded.unpriced
