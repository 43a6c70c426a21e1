-- What an attempt freed and cost, on a budget of the day on which it was sent. It may be past its retention.
-- freed, booked, tenant, action, day
update paidonce_budget set reserved = reserved - ?, cost = cost + ? where tenant = ? and action = ? and day = ?
