"""The pages of the desk in Django's admin; `contrib.django.admin` registers them."""
