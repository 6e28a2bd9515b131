"""Authentication: API keys with scopes, browser logins and one-time tickets."""
