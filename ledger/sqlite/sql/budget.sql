-- A budget of a day.
-- tenant, action, day
select cost, reserved from paidonce_budget where tenant = ? and action = ? and day = ?
