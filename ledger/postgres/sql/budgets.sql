-- Budgets of a day, of all tenants unless one is named.
-- $1 day, $2 tenant ('': all)
select tenant, action, day, cap, cost, reserved from paidonce.budget
where day = $1 and ($2 = '' or tenant = $2) order by tenant collate "C", action collate "C"
